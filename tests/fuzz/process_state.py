"""Training features that depend on the process: modules with random or patched content, settings, files that are written.

Programs with one of these always run on worker processes too, and with measured group sizes. `set_up` of a program is
called in the process that starts the study, as a script would do it after its imports.
"""

from __future__ import annotations

from tests.fuzz.slots import Part, part

_SUBSET = "loader = trial.prepare_data_loader(torch.utils.data.Subset(DATA, CHOSEN), batch_size=4)"

MODULES = (
    part("process: drawn at import", "split by torch.randperm", top="CHOSEN = torch.randperm(8)[:6].tolist()", scheduler=_SUBSET),
    part("process: drawn at import", "split by random.sample", top="CHOSEN = random.sample(range(8), 6)", scheduler=_SUBSET),
    part("process: drawn at import", "split by np.random", top="CHOSEN = np.random.permutation(8)[:6].tolist()", scheduler=_SUBSET),
    part("process: drawn at import", "random_split", top="TRAIN, VALID = torch.utils.data.random_split(range(8), [6, 2])\nCHOSEN = list(TRAIN.indices)", scheduler=_SUBSET),
    part("process: drawn at import", "noise", top="NOISE = torch.randn(4)", batch="a = a + 0.1 * NOISE"),
    part("process: default dtype", "tensor of the module", top="SCALES = torch.tensor([0.1, 0.2, 0.3, 0.4])", batch="a = a * SCALES",
         ended='metrics["kept"] = float(SCALES.sum())'),
    part("process: default dtype", "layer of the module", top="MEANS = nn.Embedding.from_pretrained(torch.tensor([[0.1], [0.2]]))", loss="loss = loss + 0.1 * MEANS(torch.tensor([1])).sum()"),
    part("process: changed after import", "global", top="FACTOR = 1.0\n\ndef set_up():\n    global FACTOR\n    FACTOR = 0.5", batch="a = a * FACTOR"),
    part("process: changed after import", "table", top="TABLE = {}\n\ndef set_up():\n    TABLE['factor'] = 0.5", batch="a = a * TABLE.get('factor', 1.0)"),
    part("process: changed after import", "tensor", top="MEAN = torch.zeros(4)\n\ndef set_up():\n    MEAN.copy_(INPUTS.mean(0))", batch="a = a - MEAN"),
    part("process: settings", "np.seterr", top="def set_up():\n    np.seterr(divide='raise')", start="num_caught = 0", ended="""
        try:
            np.array([1.0]) / np.array([0.0])
        except FloatingPointError:
            num_caught = 1
        metrics["kept"] = num_caught
        """),
    part("process: settings", "patch of a library class", top="""
        def set_up():
            nn.Linear.scale_of_fuzz = 0.5
        """, forward='out = out * getattr(nn.Linear, "scale_of_fuzz", 1.0)'),
    part("process: settings", "flag of torch.backends", top="""
        def set_up():
            torch.backends.mkldnn.enabled = False
        """, ended='metrics["kept"] = float(torch.backends.mkldnn.enabled)'),
    part("process: settings", "environment", top="""
        def set_up():
            os.environ["FUZZ_SCALE"] = "0.5"
        """, forward='out = out * float(os.environ.get("FUZZ_SCALE", "1.0"))'),
)  # fmt: skip

_LOG = """
    import tempfile
    HOME = pathlib.Path(tempfile.mkdtemp())
    """

FILES = (
    part("process: files that are written", "lines appended", top=_LOG, start="path = HOME / f\"{config['lr']}.csv\"", ended="""
        with open(path, "a") as file:
            file.write(f"{epoch}\\n")
        metrics["kept"] = len(path.read_text().splitlines())
        """),
    part("process: files that are written", "folder made anew", top=_LOG, start="folder = HOME / str(config['lr'])\nis_old = folder.exists()\nfolder.mkdir(exist_ok=True)",
         ended='metrics["kept"] = float(is_old)'),
)  # fmt: skip

PROCESS_STATE: tuple[Part, ...] = (*MODULES, *FILES)
