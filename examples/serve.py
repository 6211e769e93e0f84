"""Answer for digits over HTTP with the weights that a study found, in plain PyTorch: nothing here is Headwater's.

After `headwater run examples/surrogate.py` and `headwater best --save model.safetensors`:

    python examples/serve.py model.safetensors
    curl -d '[0, 0, 5, 13, ...]' http://127.0.0.1:8000

The body of a request is the 64 numbers of an 8 by 8 image, each from 0 to 16. It listens on this machine alone.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer

import torch
from classifier import Classifier
from safetensors.torch import load_file


def make_server(weights: str, port: int = 8000) -> HTTPServer:
    model = Classifier()
    model.load_state_dict(load_file(weights))
    model.eval()

    class Answer(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            try:
                image = torch.tensor(json.loads(self.rfile.read(int(self.headers["Content-Length"])))) / 16
                with torch.no_grad():
                    shares = model(image.view(1, 64)).softmax(1)[0]
                status, answer = 200, {"digit": int(shares.argmax()), "confidence": round(float(shares.max()), 4)}
            except (ValueError, TypeError, RuntimeError) as error:
                status, answer = 400, {"error": f"send the 64 numbers of an image as JSON: {error}"}
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

    return HTTPServer(("127.0.0.1", port), Answer)


if __name__ == "__main__":
    with make_server(sys.argv[1] if len(sys.argv) > 1 else "model.safetensors") as server:
        print(f"listening on http://127.0.0.1:{server.server_port}; end with Ctrl-C")
        server.serve_forever()
