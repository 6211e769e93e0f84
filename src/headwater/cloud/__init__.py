"""Where nodes come from: raylets on this machine, Ray's own autoscaler, instances of EC2."""
