"""Programs that tests start: from the build directory that TARN_BUILD_DIR
names, else from that of TARN_LIBRARY."""

import os
import pathlib

BUILD = pathlib.Path(
    os.environ.get("TARN_BUILD_DIR")
    or pathlib.Path(os.environ.get("TARN_LIBRARY", "build/x")).parent
)
