"""Language models with LSTM and GRU."""

from __future__ import annotations

from torch import Tensor, nn


class RecurrentModel(nn.Module):
    """Returns the logits and the hidden state."""

    def __init__(
        self,
        kind: type[nn.LSTM] | type[nn.GRU],
        *,
        hidden: int = 256,
        embedded: int = 128,
        vocab: int = 100,
        num_layers: int = 2,
        bidirectional: bool = False,
        batch_first: bool = True,
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab, embedded)
        self.rnn = kind(embedded, hidden, num_layers, batch_first=batch_first, bidirectional=bidirectional, dropout=0.1)
        self.drop = nn.Dropout(0.1)
        self.decoder = nn.Linear(hidden * (2 if bidirectional else 1), vocab)
        self.vocab = vocab

    def forward(self, tokens: Tensor) -> tuple[Tensor, object]:
        out, state = self.rnn(self.embedding(tokens))
        logits = self.decoder(self.drop(out))
        return logits.view(-1, self.vocab), state
