"""The playground opened from disk in headless Chromium: type, stream, fork, mark, go
back, and the text of the native program. Skipped where `make wasm` has not been run.
TARN_PAGE_PICTURES=DIR keeps pictures of it."""

import os
import pathlib
import subprocess

import pytest
from conftest import ROOT, TARN

PLAYGROUND = (
    pathlib.Path(os.environ.get("TARN_WASM", ROOT / "build-wasm")) / "playground/index.html"
)
if not PLAYGROUND.exists():
    pytest.skip(f"{PLAYGROUND} is not built: make wasm", allow_module_level=True)

pytest.importorskip("selenium.webdriver")
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from selenium.webdriver.support.ui import WebDriverWait  # noqa: E402
from test_page import PATIENCE, browser  # noqa: E402, F401

MODEL = ROOT / "examples/fortunes"


def native(prompt, tokens):
    """On the target whose bits WebAssembly has (tests/wasm)."""
    command = [TARN, "generate", MODEL, "--prompt", prompt, "--temperature", "0"]
    done = subprocess.run([*command, "--max-tokens", str(tokens)],
                          capture_output=True, env=dict(os.environ, TARN_FORCE_TARGET="SSE4"))  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.decode().removesuffix("\n")


class Playground:
    def __init__(self, browser):  # noqa: F811
        self.browser = browser
        browser.get_log("browser")
        browser.get(PLAYGROUND.as_uri())
        self.until(lambda: self.named("send").is_enabled())

    def until(self, check):
        return WebDriverWait(self.browser, PATIENCE, 0.05).until(lambda _: check())

    def named(self, name):
        return self.browser.find_element(By.ID, name)

    def run(self, script):
        return self.browser.execute_script(script)

    def set(self, **values):
        for name, value in values.items():
            self.named(name).clear()
            self.named(name).send_keys(str(value))

    def text(self):
        return self.run("return document.getElementById('log').textContent")

    def figures(self):
        return self.named("figures").text

    def say(self, text, told="done"):
        self.named("text").send_keys(text + Keys.ENTER)
        self.until(lambda: told in self.figures() and self.named("send").is_enabled())

    def rows(self):
        return self.browser.find_elements(By.CSS_SELECTOR, "#tree li")

    def press(self, label, row=0):
        self.rows()[row].find_element(By.XPATH, f".//button[text()='{label}']").click()

    def errors(self):
        return [row for row in self.browser.get_log("browser") if row["level"] == "SEVERE"]

    def picture(self, name):
        folder = os.environ.get("TARN_PAGE_PICTURES")
        if folder:
            self.browser.save_screenshot(str(pathlib.Path(folder) / f"playground-{name}.png"))


def test_text_forks_marks_and_the_way_back(browser):  # noqa: F811
    page = Playground(browser)
    assert "parameters" in page.named("facts").text
    page.set(temperature=0, most=200)
    page.say("The ")
    assert page.text() == "The " + native("The ", 200)
    first = page.text()
    assert "200 tokens" in page.figures() and "tokens/s" in page.figures()
    page.press("Mark")
    page.until(lambda: page.figures().startswith("Mark:"))
    page.press("Fork")
    page.until(lambda: len(page.rows()) == 2)
    assert page.text() == first
    page.say(" And")
    forked = page.text()
    assert forked.startswith(first + " And") and len(forked) > len(first) + 100
    page.picture("light")
    # Back to the mark that the fork inherited: the same text follows again.
    page.press("Back", 1)
    page.until(lambda: page.text() == first)
    page.say(" And")
    assert page.text() == forked
    # The first session has not moved, and continues as the fork did.
    page.rows()[0].find_element(By.CLASS_NAME, "name").click()
    assert page.text() == first
    page.say(" And")
    assert page.text() == forked
    page.press("Delete", 1)
    assert len(page.rows()) == 1
    assert not page.errors()


def test_the_state_is_a_flat_line(browser):  # noqa: F811
    page = Playground(browser)
    page.set(most=3000)
    page.say("A")

    def line(name):
        points = browser.find_element(By.CSS_SELECTOR, f"#chart .line-{name}")
        return [
            tuple(map(float, point.split(","))) for point in points.get_attribute("points").split()
        ]

    assert len(line("state")) > 3
    assert len({height for _, height in line("state")}) == 1
    heights = [height for _, height in line("tokens")]
    assert heights == sorted(heights, reverse=True) and heights[0] > heights[-1]


def test_escape_stops_and_shift_enter_does_not_send(browser):  # noqa: F811
    page = Playground(browser)
    page.set(most=10000000)
    page.named("text").send_keys("a" + Keys.SHIFT + Keys.ENTER + Keys.NULL + "b")
    assert page.named("text").get_attribute("value") == "a\nb"
    assert page.text() == ""
    page.named("text").send_keys(Keys.ENTER)
    page.until(lambda: len(page.text()) > 500)
    page.named("text").send_keys(Keys.ESCAPE)
    page.until(lambda: "stopped" in page.figures() and page.named("send").is_enabled())
    length = len(page.text())
    page.set(most=50)
    page.say("")
    assert len(page.text()) > length
    assert not page.errors()


def test_nothing_is_asked_for_and_the_policy_holds(browser):  # noqa: F811
    page = Playground(browser)
    page.say("<img src=x onerror=alert(1)>")
    assert page.text().startswith("<img src=x onerror=alert(1)>")
    assert page.run("return performance.getEntriesByType('resource').length") == 0
    assert not browser.find_elements(By.CSS_SELECTOR, "#log img, #log script")
    blocked = browser.execute_async_script(
        "const done = arguments[0];"
        "addEventListener('securitypolicyviolation', (e) => done(e.violatedDirective));"
        "const s = document.createElement('script'); s.textContent = 'window.x = 1';"
        "document.head.append(s);"
    )
    assert blocked.startswith("script-src") and page.run("return window.x") is None


def test_another_model_of_this_disk(browser):  # noqa: F811
    page = Playground(browser)
    page.run("document.querySelector('details').open = true")
    names = ["config.json", "model.safetensors", "tokenizer.json"]
    page.named("files").send_keys("\n".join(str(MODEL / name) for name in names[:1]))
    page.until(lambda: "model.safetensors" in page.figures())
    assert "warn" in page.named("figures").get_attribute("class")
    page.named("files").send_keys("\n".join(str(MODEL / name) for name in names))
    page.until(lambda: len(page.rows()) == 1 and "session 2" in page.rows()[0].text)
    page.set(temperature=0, most=50)
    page.say("The ")
    assert page.text() == "The " + native("The ", 50)


@pytest.mark.parametrize("dark", [False, True])
def test_a_narrow_screen_and_the_keyboard(browser, dark):  # noqa: F811
    scheme = "dark" if dark else "light"
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    size = {"width": 360, "height": 740, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        page = Playground(browser)
        page.say("Hello")
        page.press("Mark")
        assert page.run("return document.documentElement.scrollWidth") <= 360
        page.picture(f"narrow-{scheme}")
        unnamed = page.run(
            "return [...document.querySelectorAll('button, input, select, textarea')].filter("
            "(e) => !(e.textContent.trim() || e.getAttribute('aria-label') ||"
            " (e.labels && e.labels.length))).map((e) => e.outerHTML)"
        )
        assert unnamed == []
        page.run("document.activeElement.blur()")
        reached = set()
        for _ in range(30):
            browser.switch_to.active_element.send_keys(Keys.TAB)
            reached.add(browser.switch_to.active_element.text)
        assert {"Write", "New session", "Fork", "Mark", "Back", "Delete"} <= reached
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
