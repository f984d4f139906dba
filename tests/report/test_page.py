"""The page in a browser: it renders, asks nothing of any machine, and everything on it works by mouse and keyboard."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from support import ENCODERS, LENGTHS, mean_and_interval, values_of, write_run, write_sweep

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

    def __init__(self, browser: Any, folder: Path, **context: Any) -> None:
        self.messages: list[str] = []
        self.requests: list[str] = []
        self.context = browser.new_context(**context)
        self.context.set_default_timeout(WAIT)
        self.page = self.context.new_page()
        self.page.on("console", lambda message: self.messages.append(message.text))
        self.page.on("pageerror", lambda error: self.messages.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto((folder / "report" / "index.html").as_uri())

    def table(self, caption: str) -> Any:
        return self.page.locator("table", has=self.page.locator("caption", has_text=re.compile(f"^{caption}$")))

    def column(self, caption: str, number: int) -> list[str]:
        cells = self.table(caption).locator(f"tbody tr:visible > :nth-child({number})").all_inner_texts()
        return [cell.replace("\N{NO-BREAK SPACE}", " ") for cell in cells]


@pytest.fixture
def opened(browser: Any, folder: Path) -> Iterator[Opened]:
    found = Opened(browser, folder, viewport={"width": 1280, "height": 900})
    yield found
    found.context.close()
    assert found.messages == []
    assert [url for url in found.requests if not url.startswith(("file:", "data:"))] == []


def violations(opened: Opened, part: str = "document", options: str = "{}") -> list[tuple[str, str]]:
    """What axe-core finds wrong: the rule, and the first element that breaks it."""
    opened.page.evaluate(AXE.read_text(encoding="utf-8"))
    found = opened.page.evaluate(f"axe.run({part}, {options})")["violations"]
    return [(rule["id"], rule["nodes"][0]["html"]) for rule in found]


def test_the_page_is_accessible(browser: Any, folder: Path) -> None:
    opened = Opened(browser, folder, bypass_csp=True)
    opened.page.locator(".card summary").last.click()
    assert violations(opened) == []
    opened.context.close()


def test_contrast_is_sufficient_in_dark_mode(browser: Any, folder: Path) -> None:
    opened = Opened(browser, folder, color_scheme="dark", bypass_csp=True)
    assert opened.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(21, 24, 27)"
    assert violations(opened, options="{runOnly: ['color-contrast']}") == []
    opened.context.close()


def test_the_accessibility_check_finds_faults(browser: Any, folder: Path) -> None:
    opened = Opened(browser, folder, bypass_csp=True)
    opened.page.evaluate("document.querySelector('img').removeAttribute('alt')")
    opened.page.evaluate("document.querySelector('figcaption').style.color = '#dddddd'")
    rules = [rule for rule, _ in violations(opened, "document.querySelector('figure')")]
    assert {"image-alt", "color-contrast"} <= set(rules)
    opened.context.close()


def test_the_page_can_request_nothing(browser: Any, folder: Path) -> None:
    opened = Opened(browser, folder)
    opened.page.evaluate("document.body.append(Object.assign(new Image(), {src: 'http://127.0.0.1:9/x.png'}))")
    opened.page.wait_for_timeout(200)
    assert any("Content Security Policy" in line for line in opened.messages)
    opened.context.close()


@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_is_wider_than_the_screen(browser: Any, folder: Path, width: int) -> None:
    opened = Opened(browser, folder, viewport={"width": width, "height": 800})
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= width
    assert opened.page.locator(".plot svg").bounding_box()["width"] <= width
    assert all(opened.page.evaluate("[...document.images].map((image) => image.complete && image.naturalWidth > 0)"))
    opened.context.close()


def test_without_scripts_the_page_is_complete(browser: Any, folder: Path) -> None:
    opened = Opened(browser, folder, java_script_enabled=False)
    assert opened.page.locator(".chart").is_hidden()
    assert opened.page.locator("noscript").count() == 1
    assert opened.page.locator("button, input, select").count() == 0
    assert opened.table("Every run of the folder").locator("tbody tr").count() == 23
    opened.context.close()


def test_sorting_by_mouse_goes_by_number_and_back(opened: Opened) -> None:
    caption = "Token accuracy by length, copy"
    before = opened.column(caption, 1)
    heading = opened.table(caption).locator("thead th").nth(7)
    for order in ("ascending", "descending"):
        heading.locator("button").click()
        assert heading.get_attribute("aria-sort") == order
        cells = opened.column(caption, 8)
        numbers = [float(cell.partition(" ")[0]) for cell in cells if cell[0].isdigit()]
        assert numbers == sorted(numbers, reverse=order == "descending")
        assert cells[-1] == "unsupported"
        assert len(set(numbers)) > 4
    heading.locator("button").click()
    assert heading.get_attribute("aria-sort") is None
    assert opened.column(caption, 1) == before == [*ENCODERS, "guessing without reading"]


def test_sorting_by_keyboard(opened: Opened) -> None:
    button = opened.table("Every run of the folder").get_by_role("button", name="series")
    button.focus()
    opened.page.keyboard.press("Enter")
    opened.page.keyboard.press("Space")
    labels = opened.column("Every run of the folder", 2)
    assert labels == sorted(labels, reverse=True)
    assert len(set(labels)) == 6


def test_filtering_by_keyboard_tells_how_many_are_left(opened: Opened) -> None:
    opened.page.get_by_label("Filter rows of “Every run of the folder”").focus()
    opened.page.keyboard.type("sort FAILED")
    assert opened.column("Every run of the folder", 5) == ["failed: out of memory"]
    assert opened.page.get_by_text("1 of 23 rows").is_visible()
    for _ in "sort FAILED":
        opened.page.keyboard.press("Backspace")
    assert len(opened.column("Every run of the folder", 1)) == 23


def test_curves_are_chosen_by_task_metric_and_encoder(opened: Opened) -> None:
    page = opened.page
    assert page.locator("path.curve").count() == 6
    assert page.locator("path.boundary").count() == 1
    bands = page.locator("path.band").count()
    assert bands == 6
    page.get_by_label("95 % intervals").uncheck()
    assert page.locator("path.band").count() == 0
    page.locator(".choices").get_by_label("rope").uncheck()
    assert page.locator("path.curve").count() == 5
    assert "rope" not in (page.locator(".plot svg").get_attribute("aria-label") or "")
    page.get_by_role("button", name="None", exact=True).click()
    assert page.locator("path.curve").count() == 0
    page.get_by_role("combobox", name="Task").select_option("sort")
    page.get_by_role("combobox", name="Metric").select_option("exact match")
    assert page.locator("path.curve").count() == 2
    assert page.locator(".plot svg").get_attribute("aria-label") == "exact match over length, sort: none, rope"


def _point(folder: Path, encoder: str, length: int) -> str:
    """What is to be read at a point, from the CSV files alone."""
    where = {"experiment": ["length_extrapolation"], "metric": ["token_accuracy"], "task": ["copy"]}
    found = values_of(folder, **where, eval_length=[str(length)])
    values = [value for (name, _), value in found.items() if name == encoder]
    mean, low, high = (_digits(value) for value in mean_and_interval(values))
    return f"{encoder}, length {length}: {mean} (95 % interval {low} to {high}, 3 seeds)"


def _digits(value: float) -> str:
    """Three digits of the four that the page holds, as JavaScript writes them."""
    held = float(f"{value:.4g}")
    return f"{float(f'{held:.3g}'):g}"


def test_values_are_read_by_pointing_and_by_arrow_keys(opened: Opened, folder: Path) -> None:
    page, readout = opened.page, opened.page.locator(".readout")
    mark = page.locator(".plot svg > polygon").nth(3)  # none, the fourth length
    mark.hover(force=True)
    assert readout.inner_text() in {_point(folder, encoder, LENGTHS[3]) for encoder in ENCODERS if encoder != "learned"}
    assert page.locator(".tip").is_visible()
    page.mouse.move(5, 5)
    assert page.locator(".tip").is_hidden()
    page.get_by_label("95 % intervals").focus()
    while not page.locator(".plot svg").evaluate("(picture) => picture === document.activeElement"):
        page.keyboard.press("Tab")
    assert readout.inner_text() == _point(folder, "none", LENGTHS[0])
    for key in ("ArrowRight", "ArrowRight", "ArrowDown"):
        page.keyboard.press(key)
    assert readout.inner_text() == _point(folder, "sinusoidal", LENGTHS[2])
    page.keyboard.press("Escape")
    assert readout.inner_text() == ""


def test_links_and_headings_lead_through_the_page(opened: Opened) -> None:
    page = opened.page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.get_by_role("navigation", name="Contents").get_by_role("link", name="Encoders", exact=True).click()
    sync_api.expect(page.get_by_role("heading", name="Encoders", exact=True)).to_be_in_viewport(timeout=WAIT)


def test_print_unfolds_cards_and_drops_controls(opened: Opened) -> None:
    page = opened.page
    page.locator(".card summary").first.click()
    assert page.locator(".card").first.get_attribute("open") is None
    page.emulate_media(media="print")
    assert page.locator(".filter").first.is_hidden()
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator(".card").first.get_attribute("open") is not None
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator(".card").first.get_attribute("open") is None


def test_the_curves_hold_what_the_rows_hold(folder: Path) -> None:
    text = (folder / "report" / "index.html").read_text(encoding="utf-8")
    held = re.search(r'<script type="application/json">(.*?)</script>', text)
    assert held is not None
    data = json.loads(held[1])
    assert [task["name"] for task in data["tasks"]] == ["copy", "sort"]
    (metric,) = (found for found in data["tasks"][0]["metrics"] if found["name"] == "token accuracy")
    assert (metric["lengths"], data["tasks"][0]["trained"]) == (list(LENGTHS), [16])
    for encoder in ENCODERS:
        for length, (mean, low, high, seeds) in zip(LENGTHS, metric["lines"][encoder], strict=True):
            where = {"experiment": ["length_extrapolation"], "metric": ["token_accuracy"], "task": ["copy"]}
            values = [
                v for (name, _), v in values_of(folder, **where, eval_length=[str(length)]).items() if name == encoder
            ]
            assert seeds == len(values) == (0 if encoder == "learned" and length > 16 else 3)
            if values:
                assert (mean, low, high) == pytest.approx(mean_and_interval(values), rel=1e-3, abs=1e-4)
