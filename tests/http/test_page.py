"""The page, in headless Chromium: what it shows, what its buttons do, and that nothing of a prompt becomes HTML."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.http.conftest import KEYS
from tests.http.served import SECRET, Served
from tests.upstream import Behaviour, Upstream

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
needs_chromium = pytest.mark.skipif(
    CHROMIUM is None or DRIVER is None,
    reason="chromium and chromedriver aren't installed (Debian: chromium-driver)",
)
QUESTION = "How do I reset my password?"
PARAPHRASE = "How can I reset my password?"
HOSTILE = '"><img src=x onerror="document.title=\'owned\'"><script>document.title="owned"</script>{{7*7}}'


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM or ""
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--no-proxy-server",
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    yield driver
    driver.quit()


class Page:
    """The open page."""

    def __init__(self, driver: Any, url: str) -> None:
        self.driver = driver
        driver.get(url + "/")

    def find(self, css: str) -> Any:
        return self.driver.find_element("css selector", css)

    def until(self, script: str) -> Any:
        from selenium.webdriver.support.ui import WebDriverWait

        return WebDriverWait(self.driver, 20).until(lambda d: d.execute_script(f"return {script}"))

    def text(self, css: str) -> str:
        return str(self.driver.execute_script("return document.querySelector(arguments[0]).textContent", css))

    def click(self, css: str, words: str) -> None:
        found = [
            button
            for button in self.driver.find_elements("css selector", css + " button")
            if words in button.text or words == button.get_attribute("aria-label")
        ]
        self.driver.execute_script("arguments[0].click()", found[0])

    def shoot(self, name: str) -> None:
        folder = os.environ.get("SEMCACHE_SCREENSHOTS")
        if folder:
            Path(folder).mkdir(parents=True, exist_ok=True)
            self.driver.save_screenshot(str(Path(folder) / f"{name}.png"))

    def emulate(self, *, width: int, height: int, dark: bool) -> None:
        self.driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600},
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})

    def complaints(self) -> list[str]:
        return [str(line["message"]) for line in self.driver.get_log("browser") if line["level"] == "SEVERE"]


def fill(served: Served) -> None:
    for text in (QUESTION, QUESTION, PARAPHRASE, "Where is the office?"):
        served.chat(text, headers={"x-semcache-tags": "help:account"})
    served.chat("What is two and two?", headers={"x-semcache-mode": "off"})


def test_the_page_is_static_and_public_under_a_strict_policy(keyed: Served) -> None:
    for path, kind in (("/", "text/html"), ("/page.css", "text/css"), ("/page.js", "text/javascript")):
        answer = keyed.call("GET", path)
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith(kind)
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "http:" not in policy
    static = keyed.call("GET", "/").text
    assert "style=" not in static
    assert "http" not in static
    assert "innerHTML" not in keyed.call("GET", "/page.js").text


@needs_chromium
def test_the_page_shows_numbers_decisions_and_entries_and_works_by_its_buttons(
    served: Served, browser: Any
) -> None:
    fill(served)
    page = Page(browser, served.origin)
    page.until("document.querySelectorAll('#decision-list > li').length === 5")
    page.until("document.querySelectorAll('#entry-list > li').length === 2")

    assert "50.0 %" in page.text("#tiles")
    assert "1 exact, 1 semantic" in page.text("#tiles")
    semantic = page.driver.execute_script(
        "return [...document.querySelectorAll('#decision-list > li')]"
        ".filter(li => li.textContent.includes('semantic hit')).map(li => li.textContent)"
    )
    assert len(semantic) == 1
    assert QUESTION in semantic[0]
    assert PARAPHRASE in semantic[0]
    assert "similarity 0.99" in semantic[0]
    assert QUESTION in page.text("#hot-list")

    page.click("#decision-list > li", "wrong answer")
    page.until("!document.querySelector('#tiles').textContent.includes('nobody has judged')")

    page.click("#entry-list > li:last-child", "Open")
    page.until("document.querySelector('#entry').open")
    assert QUESTION in page.text("#entry")
    assert "help:account" in page.text("#entry")
    page.click("#entry", "Withdraw")
    page.until("document.querySelectorAll('#withdrawn-list > li:not(.empty)').length === 1")
    assert served.chat(QUESTION, headers={"cache-control": "no-store"}).headers["x-semcache-status"] == "miss"
    page.until("document.querySelector('#entry').textContent.includes('Restore')")
    page.click("#entry", "Restore")
    page.until("document.querySelectorAll('#withdrawn-list > li:not(.empty)').length === 0")
    assert served.chat(QUESTION).headers["x-semcache-status"] == "hit"
    page.click("#entry", "Close")
    assert page.complaints() == []


@needs_chromium
def test_explain_and_invalidate_by_tag_with_the_keyboard_alone(served: Served, browser: Any) -> None:
    from selenium.webdriver.common.keys import Keys

    fill(served)
    page = Page(browser, served.origin)
    page.until("!document.querySelector('#content').hidden")
    page.find("#explain-form textarea").send_keys(PARAPHRASE, Keys.TAB, "m", Keys.ENTER)
    page.until("document.querySelector('#explained').textContent.includes('semantic hit')")
    assert QUESTION in page.text("#explained")
    assert "What would refuse it" in page.text("#explained")

    page.find("#invalidate-form input").send_keys("help:account", Keys.ENTER)
    page.until("document.querySelector('#invalidated').textContent.includes('2 entries')")
    page.find("#invalidate-form button[name=go]").send_keys(Keys.ENTER)
    page.until("document.querySelector('#invalidated').textContent.includes('Withdrawn')")
    assert served.chat(QUESTION).headers["x-semcache-reason"] == "stale_tag"


@needs_chromium
def test_a_hostile_prompt_and_answer_stay_text(served: Served, stub: Upstream, browser: Any) -> None:
    stub.always(Behaviour(text=HOSTILE))
    for _ in range(2):
        served.chat(HOSTILE, headers={"x-semcache-tags": HOSTILE.replace(",", "")[:100]})
    served.chat(HOSTILE, model=HOSTILE)
    page = Page(browser, served.origin)
    page.until("document.querySelectorAll('#decision-list > li').length === 3")
    page.until("document.querySelectorAll('#entry-list > li').length === 2")
    page.click("#entry-list > li:last-child", "Open")
    page.until("document.querySelector('#entry').open")
    page.find("#explain-form textarea")
    page.driver.execute_script(
        "document.querySelector('#explain-form textarea').value = arguments[0]", HOSTILE
    )
    page.driver.execute_script("document.querySelector('#explain-form').requestSubmit()")
    page.until("document.querySelector('#explained').childElementCount > 0")

    assert HOSTILE in page.text("#decision-list")
    assert HOSTILE in page.text("#entry")
    assert page.driver.title == "semcache"
    assert page.driver.execute_script("return document.querySelectorAll('img, main script').length") == 0
    assert page.complaints() == []


@needs_chromium
def test_with_keys_the_page_asks_for_one_that_is_an_admins(stub: Upstream, browser: Any) -> None:
    with Served(stub.url, keys=KEYS, secret=SECRET) as served:
        served.chat(QUESTION, key="acme")
        page = Page(browser, served.origin)
        page.until("!document.querySelector('#login').hidden")
        assert QUESTION not in page.driver.page_source
        for name, shown in (("acme", False), ("bolt-admin", True)):
            page.driver.execute_script("document.querySelector('#key').value = arguments[0]", f"sc-{name}")
            page.driver.execute_script("document.querySelector('#login').requestSubmit()")
            page.until(f"document.querySelector('#content').hidden === {str(not shown).lower()}")
        assert QUESTION not in page.driver.page_source
        page.driver.execute_script("sessionStorage.clear()")


@needs_chromium
@pytest.mark.parametrize(
    ("name", "width", "height", "dark"),
    [
        ("desktop-light", 1280, 1500, False),
        ("desktop-dark", 1280, 1500, True),
        ("phone-dark", 375, 1600, True),
    ],
)
def test_nothing_is_cut_off_at_any_width(
    served: Served, stub: Upstream, browser: Any, name: str, width: int, height: int, dark: bool
) -> None:
    fill(served)
    served.chat("x" * 300)
    page = Page(browser, served.origin)
    page.emulate(width=width, height=height, dark=dark)
    page.until("document.querySelectorAll('#decision-list > li').length === 6")
    page.until("document.querySelectorAll('#entry-list > li').length === 3")
    page.shoot(name)
    wide = page.driver.execute_script("return document.documentElement.scrollWidth")
    page.click("#entry-list > li:last-child", "Open")
    page.until("document.querySelector('#entry').open")
    page.shoot(name + "-entry")

    assert wide <= width
    back = page.driver.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert (back == "rgb(20, 21, 26)") is dark


def test_another_sites_page_and_a_rebound_name_are_not_the_local_user(served: Served) -> None:
    path = "/v1/cache/overview"
    assert served.call("GET", path).status_code == 200
    for headers in (
        {"host": "evil.example"},
        {"host": f"evil.example:{served.origin.rsplit(':')[-1]}"},
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"x-forwarded-for": "198.51.100.1"},
        {"forwarded": "for=198.51.100.1"},
    ):
        assert served.call("GET", path, headers=headers).status_code == 401, headers
        body = {"all": True}
        assert served.call("POST", "/v1/cache/invalidate", headers=headers, json=body).status_code == 401
    form = served.call(
        "POST", "/v1/cache/invalidate", headers={"content-type": "text/plain"}, content=b'{"all": true}'
    )
    assert form.status_code == 415
