"""Surrogates: small stand-ins of a model, whose best hyperparameters are those of the model itself."""
