"""Tables that are written, and files without a header."""

import numpy as np
import pandas as pd
import pytest

from mnemosphere.cli.table_writer import write_table
from mnemosphere.rows.tables import read_table


@pytest.mark.parametrize("suffix", [".csv", ".tsv.gz", ".parquet"])
def test_parts_are_written_as_the_whole_and_read_back(tmp_path, suffix):
    table = pd.DataFrame({"a": np.arange(7) / 3, "b": [None, None, "x", "y,z", "v", None, "w"]})
    paths = [tmp_path / "new" / f"{name}{suffix}" for name in ("parts", "whole")]
    write_table(paths[0], [table[:2], table[2:3], table[3:]], table)
    write_table(paths[1], [table], table)
    if suffix == ".csv":  # others are packed part by part
        assert paths[0].read_bytes() == paths[1].read_bytes()
    for path in paths:
        pd.testing.assert_frame_equal(read_table(str(path)).x, table, check_dtype=False)

    def parts():
        yield table[:2]
        assert len(list((tmp_path / "new").iterdir())) == 3  # under another name so far
        raise RuntimeError

    with pytest.raises(RuntimeError):
        write_table(tmp_path / "new" / f"bad{suffix}", parts(), table)
    assert len(list((tmp_path / "new").iterdir())) == 2


def test_no_header_on_the_command_line(run, tmp_path, kit):
    kit.frame().drop(columns="tag").to_csv(tmp_path / "a.csv", index=False, header=False)
    words = ["train", tmp_path / "a.csv", *kit.fast, "--no-header", "--out", tmp_path / "run", "-q"]
    run(*words)
    found = run("predict", tmp_path / "run", tmp_path / "a.csv", "--no-header", "--json").json
    assert len(found["predictions"]) == kit.n_rows
    assert found["predictions"][0]["line"] == "1"
