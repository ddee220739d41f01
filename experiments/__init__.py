"""The paper's experiments on this machine: `tarn experiment --help`."""
