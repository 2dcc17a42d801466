"""Define the option `--file`, which makes a command read an archived run instead of one in the store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from ...files.settings import Settings
from ...runs import find
from ...runs.queries.run_lookup import open_reader
from ...store.reader import StoreReader
from ...values.errors import Mistake

file_option = click.option(
    "--file", type=click.Path(path_type=Path), metavar="FILE", help="Read a run that podium store prune has archived."
)


@contextmanager
def open_run(run: str, file: Path | None) -> Iterator[tuple[StoreReader, str]]:
    """Open the store or the file, and yield a reader and the run's id. `run` can be empty if the file has only one run.

    Raise UsageError if no run is given, and NoSuchRun unless exactly one run matches.
    """
    if file is None:
        if not run:
            raise click.UsageError("Missing argument 'RUN'.")
        with open_reader(Settings.load().store) as reader:
            yield reader, find.resolve(reader, run).run
        return
    from ...store.store_file import import_store  # imported here for start-up time

    with TemporaryDirectory(prefix="podium-") as folder:
        store = Path(folder) / "podium.db"
        import_store(store, file)
        with StoreReader(store) as reader:
            runs = reader.list_run_ids()
            if not run and len(runs) != 1:
                raise Mistake(f"{file} has {len(runs)} runs; give the id of one of them")
            yield reader, find.resolve(reader, run or runs[0]).run
