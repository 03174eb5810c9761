"""The page in a real browser: figures load, tables are there, nothing is asked of the network."""

import shutil

import pytest

from aes_rl.cli import main

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine; on Debian: apt-get install chromium")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("width", [390, 1200])
def test_the_page_in_a_browser(study, width) -> None:
    from playwright.sync_api import sync_playwright

    main(["report", str(study)])
    errors, requests = [], []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": width, "height": 900})
        page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        page.goto((study / "report" / "index.html").resolve().as_uri())
        widths = page.eval_on_selector_all("img", "images => images.map(image => image.naturalWidth)")
        tables = page.locator("table.measures tbody tr:not(.group)").count()
        overflow = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        cut = page.eval_on_selector_all(
            "td, th",
            "cells => cells.filter(cell => cell.scrollWidth > cell.clientWidth + 1).map(cell => cell.innerText)",
        )
        shaded = page.locator("td.best").count()
        browser.close()
    assert errors == []
    assert len(widths) == 6
    assert min(widths) > 300
    assert tables == 24  # all seeds, and those not tuned on
    assert shaded > 0
    assert overflow <= 0
    assert cut == [], "no number is wider than its cell"
    assert [url for url in requests if not url.startswith(("file:", "data:"))] == []
