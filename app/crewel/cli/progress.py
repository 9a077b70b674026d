"""A bar on stderr that shows how far long work is; nothing where there is no terminal."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

Show = Callable[[int], None]


@contextmanager
def progress(what: str, unit: str, total: int | None = None) -> Iterator[Show]:
    """Show how far it is; the value is to be called with the amount done."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn(f"{{task.completed:,}} {unit}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.update(task, completed=done)
