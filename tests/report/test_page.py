"""The pages in a browser: they render, ask nothing of any machine, and work by mouse and keyboard."""

from __future__ import annotations

import os
import re
import shutil
import statistics
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from support import ENCODERS, LENGTHS, main_rows, values_of, write_run, write_sweep

import report

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
axe = pytest.importorskip("axe_playwright_python", reason="axe-playwright-python is not installed")

BROWSER = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
]
WAIT = 120_000
"""Milliseconds, for a machine that has much else to do."""
AXE = Path(axe.__file__).with_name("axe.min.js")

pytestmark = [
    pytest.mark.skipif(BROWSER is None, reason="no Chromium on the path: apt-get install chromium, or set CHROMIUM"),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=BROWSER, args=FLAGS, timeout=WAIT)
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, rendering: Callable[[str], AbstractContextManager[None]]) -> Path:
    """Two tasks, six encoders, three seeds, and a run that failed."""
    place = tmp_path_factory.mktemp("results") / "sweep"
    write_sweep(place)
    write_sweep(place, ("none", "rope"), 2, task="sort")
    write_run(place, "rope", 2, task="sort", record={"status": "failed", "message": "out of memory"})
    with rendering("svg"):
        assert report.main([str(place)]) == 0
    return place


class Opened:
    """A page in a browser, with its console messages and requests."""

    def __init__(self, browser: Any, folder: Path, name: str = "index.html", **context: Any) -> None:
        self.messages: list[str] = []
        self.requests: list[str] = []
        self.context = browser.new_context(**context)
        self.context.set_default_timeout(WAIT)
        self.page = self.context.new_page()
        self.page.on("console", lambda message: self.messages.append(message.text))
        self.page.on("pageerror", lambda error: self.messages.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto((folder / "report" / name).as_uri())

    def table(self, caption: str) -> Any:
        return self.page.locator("table", has=self.page.locator("caption", has_text=re.compile(f"^{caption}$")))

    def column(self, caption: str, number: int) -> list[str]:
        cells = self.table(caption).locator(f"tbody tr:visible > :nth-child({number})").all_inner_texts()
        return [cell.replace("\N{NO-BREAK SPACE}", " ") for cell in cells]


PAGES = ("index.html", "tasks/copy.html", "encoders/rope.html", "data.html")


@pytest.fixture(params=PAGES)
def opened(browser: Any, folder: Path, request: pytest.FixtureRequest) -> Iterator[Opened]:
    yield from _opened(browser, folder, request.param)


@pytest.fixture
def data(browser: Any, folder: Path) -> Iterator[Opened]:
    yield from _opened(browser, folder, "data.html")


@pytest.fixture
def index(browser: Any, folder: Path) -> Iterator[Opened]:
    yield from _opened(browser, folder, "index.html")


def _opened(browser: Any, folder: Path, name: str) -> Iterator[Opened]:
    found = Opened(browser, folder, name, viewport={"width": 1280, "height": 900})
    yield found
    found.context.close()
    assert found.messages == []
    assert [url for url in found.requests if not url.startswith(("file:", "data:"))] == []


def violations(opened: Opened, part: str = "document", options: str = "{}") -> list[tuple[str, str]]:
    """What axe-core finds wrong: the rule, and the first element that breaks it."""
    opened.page.evaluate(AXE.read_text(encoding="utf-8"))
    found = opened.page.evaluate(f"axe.run({part}, {options})")["violations"]
    return [(rule["id"], rule["nodes"][0]["html"]) for rule in found]


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_are_accessible_in_both_schemes(browser: Any, folder: Path, name: str, scheme: str) -> None:
    opened = Opened(browser, folder, name, color_scheme=scheme, bypass_csp=True)
    opened.page.evaluate("document.querySelectorAll('details').forEach((part) => { part.open = true; })")
    ground = opened.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == ("rgb(18, 22, 26)" if scheme == "dark" else "rgb(255, 255, 255)")
    assert violations(opened) == []
    opened.context.close()


def test_the_accessibility_check_finds_faults(browser: Any, folder: Path) -> None:
    opened = Opened(browser, folder, "tasks/copy.html", bypass_csp=True)
    opened.page.evaluate("document.querySelectorAll('details').forEach((part) => { part.open = true; })")
    opened.page.evaluate("document.querySelector('img').removeAttribute('alt')")
    opened.page.evaluate("document.querySelector('img').closest('figure').querySelector('figcaption').id = 'pale'")
    opened.page.evaluate("document.querySelector('#pale').style.color = '#dddddd'")
    rules = [rule for rule, _ in violations(opened, "document.querySelector('#pale').parentElement")]
    assert {"image-alt", "color-contrast"} <= set(rules)
    opened.context.close()


def test_the_page_can_request_nothing(browser: Any, folder: Path) -> None:
    opened = Opened(browser, folder)
    opened.page.evaluate("document.body.append(Object.assign(new Image(), {src: 'http://127.0.0.1:9/x.png'}))")
    opened.page.wait_for_timeout(200)
    assert any("Content Security Policy" in line for line in opened.messages)
    opened.context.close()


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("width", [390, 1400])
def test_nothing_is_wider_than_the_screen(browser: Any, folder: Path, name: str, width: int) -> None:
    opened = Opened(browser, folder, name, viewport={"width": width, "height": 800})
    opened.page.evaluate("document.querySelectorAll('details').forEach((part) => { part.open = true; })")
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= width
    shown = opened.page.locator("svg.hero:visible")
    assert [box["width"] <= width for box in (each.bounding_box() for each in shown.all())] == [True] * shown.count()
    # What a board cuts off at its right would be the dots of what is kept whole.
    cut = "[...document.querySelectorAll('.board')].map((board) => board.scrollWidth - board.clientWidth)"
    assert max(opened.page.evaluate(cut), default=0) <= 0
    if name in PAGES[:2]:
        assert shown.count() == 1
        assert opened.page.locator(".board td.mean:visible").count() == opened.page.locator(".board tbody th").count()
    opened.context.close()


def test_a_long_name_of_a_series_hides_no_column_of_its_board(browser: Any, tmp_path: Path) -> None:
    more = {"num_symbols": 64, "max_offset": 2, "index_hints": 64}
    other = {"task": {"name": "copy", "train_length": 16} | more}
    write_sweep(tmp_path, rows=main_rows)
    for seed in range(3):
        write_run(tmp_path, "rope", seed, run_id=f"other{seed}", rows=main_rows, config=other)
    assert report.main([str(tmp_path)]) == 0
    opened = Opened(browser, tmp_path, viewport={"width": 1280, "height": 800})
    right = opened.page.evaluate("document.querySelector('.board').getBoundingClientRect().right")
    assert right <= 1280
    opened.context.close()


def test_the_answer_is_on_the_first_screen(browser: Any, folder: Path) -> None:
    opened = Opened(browser, folder, "tasks/copy.html", viewport={"width": 1400, "height": 900})
    for part in ("h1", "svg.hero.wide", ".facts li:last-child", ".board tr:last-child", ".not"):
        sync_api.expect(opened.page.locator(part).first).to_be_in_viewport(timeout=WAIT)
    assert len(re.findall(r"\d+\s%", opened.page.locator("h1").inner_text())) >= 2
    opened.context.close()


def test_without_scripts_the_page_is_complete(browser: Any, folder: Path) -> None:
    opened = Opened(browser, folder, "data.html", java_script_enabled=False)
    assert opened.page.locator("button, input, select").count() == 0
    opened.page.get_by_text("Every run of the folder (23 rows)").click()
    assert opened.table("Every run of the folder").locator("tbody tr").count() == 23
    opened.context.close()


def test_figures_are_loaded_when_their_section_is_opened(browser: Any, folder: Path) -> None:
    opened = Opened(browser, folder, "tasks/copy.html", viewport={"width": 1400, "height": 900})
    assert not [url for url in opened.requests if "/figures/" in url]
    opened.page.locator("details > summary").first.click()
    image = opened.page.locator("details[open] img").first
    sync_api.expect(image).to_have_js_property("complete", True, timeout=WAIT)
    assert image.evaluate("image => image.naturalWidth") > 0
    opened.context.close()


def _runs(data: Opened) -> Any:
    data.page.get_by_text("Every run of the folder (23 rows)").click()
    return data.table("Every run of the folder")


def test_sorting_by_mouse_goes_by_number_and_back(data: Opened) -> None:
    heading, caption = _runs(data).locator("thead th").nth(3), "Every run of the folder"
    before = data.column(caption, 1)
    for order in ("ascending", "descending"):
        heading.locator("button").click()
        assert heading.get_attribute("aria-sort") == order
        numbers = [int(cell) for cell in data.column(caption, 4)]
        assert numbers == sorted(numbers, reverse=order == "descending")
    heading.locator("button").click()
    assert heading.get_attribute("aria-sort") is None
    assert data.column(caption, 1) == before


def test_sorting_by_keyboard(data: Opened) -> None:
    button = _runs(data).get_by_role("button", name="series")
    button.focus()
    data.page.keyboard.press("Enter")
    data.page.keyboard.press("Space")
    labels = data.column("Every run of the folder", 2)
    assert labels == sorted(labels, reverse=True)
    assert len(set(labels)) == 6


def test_filtering_by_keyboard_tells_how_many_are_left(data: Opened) -> None:
    _runs(data)
    data.page.get_by_label("Filter rows of “Every run of the folder”").focus()
    data.page.keyboard.type("sort FAILED")
    assert data.column("Every run of the folder", 5) == ["failed: out of memory"]
    assert data.page.get_by_text("1 of 23 rows").is_visible()
    for _ in "sort FAILED":
        data.page.keyboard.press("Backspace")
    assert len(data.column("Every run of the folder", 1)) == 23


def test_pointing_at_a_series_shows_it_alone(browser: Any, folder: Path) -> None:
    for opened in _opened(browser, folder, "tasks/copy.html"):
        opened.page.locator(".board tr[data-e=rope]").hover()
        assert opened.page.locator("g.sel").first.get_attribute("data-e") == "rope"
        opened.page.mouse.move(5, 5)
        assert opened.page.locator(".sel").count() == 0


def test_links_lead_through_the_pages(index: Opened) -> None:
    page = index.page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.locator(".links a", has_text="sort").click()
    sync_api.expect(page.locator("h1")).to_contain_text("Trained to length 16", timeout=WAIT)
    page.locator(".board a", has_text="rope").click()
    sync_api.expect(page.locator("h1")).to_have_text("rope", timeout=WAIT)
    page.get_by_role("link", name="Method and data").click()
    sync_api.expect(page.get_by_role("heading", name="Provenance")).to_have_count(1, timeout=WAIT)


def test_print_unfolds_everything_and_folds_it_again(opened: Opened) -> None:
    page, folded = opened.page, "details:not([open])"
    before = page.locator(folded).count()
    page.emulate_media(media="print")
    assert page.locator(".filter:visible").count() == 0
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator(folded).count() == 0
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator(folded).count() == before


def test_the_curves_alone_have_a_title(folder: Path) -> None:
    """On the page it stands above them; elsewhere they need it."""
    picture = ElementTree.parse(folder / "report" / "figures" / "answer.svg").getroot()
    assert picture.findtext("{*}text") == "copy: token accuracy, %, by length"
    left, top, width, height = map(int, picture.get("viewBox", "").split())
    assert (left, width, top + height) == (0, 836, 352)
    assert top < 0


def test_a_curve_is_where_its_rows_are(folder: Path) -> None:
    text = (folder / "report" / "tasks" / "copy.html").read_text(encoding="utf-8")
    hero = text[text.index('<svg class="hero wide"') : text.index('<svg class="hero narrow"')]
    assert hero.count('class="seed"') == 3 * (len(ENCODERS) - 1) + 3
    for encoder in ENCODERS:
        group = hero[hero.index(f'data-e="{encoder}"') :]
        (drawn,) = re.findall(r'<path class="mean" d="M([^"]*)"', group[: group.index("</g>")])
        points = [tuple(map(float, point.split())) for point in drawn.split("L")]
        for length, (_, y) in zip(LENGTHS, points, strict=False):
            where = {"experiment": ["length_extrapolation"], "metric": ["token_accuracy"], "task": ["copy"]}
            found = values_of(folder, **where, eval_length=[str(length)])
            mean = statistics.fmean(value for (name, _), value in found.items() if name == encoder)
            assert y == pytest.approx(316 - mean * 304, abs=0.06)
