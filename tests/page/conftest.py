import os
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
TARN = os.environ.get("TARN_PROGRAM", str(ROOT / "build" / "tarn"))
