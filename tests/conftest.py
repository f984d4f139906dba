"""Every test starts from the same random state, on one thread; the command line is called in an empty folder."""

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache
from pathlib import Path

import pytest
import torch
from matplotlib.figure import Figure
from omegaconf import DictConfig
from support import ROOT, Command, Done, last_of_each

import run
from experiments.figures import style
from experiments.plan.measures import experiment_names, load_experiment
from experiments.runs import config, pool
from experiments.training import heartbeat
from pe_zoo import _registry

torch.set_num_threads(1)


SLOWEST = (
    "test_slurm.py",
    "test_ray.py",
    "test_notebook.py",
    "test_parallel.py",
    "test_resume.py",
    "test_launchers.py",
)
"""Their tests wait for processes and begin first, so that none is left over when all others are done."""


def pytest_xdist_auto_num_workers() -> int:
    """One worker more than there are cores: a quarter of the time tests wait for processes that they started."""
    return pool.cores() + 1


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.name not in SLOWEST)


def pytest_collection_finish() -> None:
    """Keep what is loaded by now out of garbage collection, which takes a seventh of the time otherwise."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _fixed_seed() -> None:
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def _registry_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers is gone after it: others go through all encoders."""
    for registry in _registry._registries:
        monkeypatch.setattr(registry, "_classes", dict(registry._classes))
    monkeypatch.setattr(_registry, "_loaded", set(_registry._loaded))


published: list[tuple[str, str, object]] = []
"""What is in Hydra's menus."""


choose_anew = config.chosen.__wrapped__


@lru_cache(maxsize=64)
def composed(_: tuple[str, ...], *overrides: str) -> DictConfig:
    """The configuration of this repository's folder, by Hydra's search path and the overrides."""
    return choose_anew(*overrides)


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Command:
    """``python run.py …`` in an empty folder, in this process.

    Menus and the last configurations, which every command asks for anew, are kept: composing takes most of the time of
    a request that is refused.
    """
    make_menus, of_one_command = config.publish, config.chosen

    def publish() -> None:
        menus = [(group, name, get(name)) for group, (names, get) in config.MENUS.items() for name in names()]
        menus += [("experiment", name, load_experiment) for name in experiment_names()]
        if menus != published:
            make_menus()
            composed.cache_clear()
            published[:] = menus

    def chosen(*overrides: str) -> DictConfig:
        ours = run.CONFIGS == ROOT / "configs"
        return composed(tuple(config._search), *overrides) if ours else of_one_command(*overrides)

    chosen.cache_clear = of_one_command.cache_clear  # type: ignore[attr-defined]
    monkeypatch.setattr(config, "publish", publish)
    monkeypatch.setattr(config, "chosen", chosen)
    monkeypatch.setattr(heartbeat, "SECONDS", 3600)
    monkeypatch.setattr(pool, "cores", lambda: 1)  # a sweep starts no workers unless it is asked to

    def call(*arguments: str) -> Done:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", [str(ROOT / "run.py"), *last_of_each(arguments)])
        capfd.readouterr()
        code = run.main()
        out, err = capfd.readouterr()
        return Done(code, out, err)

    return call


def unrendered(_: object, suffix: str) -> bytes:
    return b""


rendered, style.render = style.render, unrendered
"""Figures are made without being rendered, which takes most of a run's and a report's time."""


@pytest.fixture(autouse=True)
def _drawn(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.node.get_closest_marker("drawn"):
        monkeypatch.setattr(style, "render", rendered)


@pytest.fixture(scope="session")
def rendering() -> Callable[[str], AbstractContextManager[None]]:
    """Render figures in one format, for fixtures that several tests share."""

    @contextmanager
    def only(suffix: str) -> Iterator[None]:
        def draw(figure: Figure, wanted: str) -> bytes:
            return rendered(figure, wanted) if wanted == suffix else b""

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(style, "render", draw)
            yield

    return only
