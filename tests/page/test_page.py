"""The page in headless Chromium: type, stream, fork, go back, park, reload, lose the
connection and resume. TARN_PAGE_PICTURES=DIR keeps pictures of it."""

import os
import pathlib
import shutil
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/cli"))

import bigram_model  # noqa: E402
from serve_program import Server  # noqa: E402

webdriver = pytest.importorskip("selenium.webdriver")
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from selenium.webdriver.support.ui import WebDriverWait  # noqa: E402

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
if not CHROMIUM or not DRIVER:
    pytest.skip("want chromium and chromedriver, found none", allow_module_level=True)

# After <|assistant|> the answer is <think>ab</think>cd; a text that is markup stays text.
ANSWERS = dict(
    zip(
        ["<|assistant|>", "<think>", "a", "b", "</think>", "c", "d"],
        ["<think>", "a", "b", "</think>", "c", "d", "<|end|>"],
    )
)
# A machine under load answers late: no verdict comes from how late.
PATIENCE = 300


@pytest.fixture(scope="module")
def browser():
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    one = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    one.set_window_size(1200, 900)
    yield one
    one.quit()


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    bigram_model.write_bigram_model(root / "talks", ANSWERS, bigram_model.KEEPS_THINKING)
    return root


@pytest.fixture
def server(models, tmp_path):
    one = Server(models / "talks", "--park-dir", tmp_path)
    yield one
    one.end()


class Page:
    def __init__(self, browser, port):
        self.browser = browser
        browser.get_log("browser")
        browser.get(f"http://localhost:{port}/")
        self.until(lambda: self.named("model").get_attribute("value"))

    def until(self, check):
        return WebDriverWait(self.browser, PATIENCE, 0.05).until(lambda _: check())

    def named(self, name):
        return self.browser.find_element(By.ID, name)

    def log(self):
        return self.named("log").text

    def rows(self):
        return self.browser.find_elements(By.CSS_SELECTOR, "#tree li")

    def press(self, label, row=0):
        """A button of a session; waits until its result is told."""
        self.rows()[row].find_element(By.XPATH, f".//button[text()='{label}']").click()

    def told(self, part):
        self.until(lambda: part in self.named("figures").text)

    def say(self, text):
        self.named("text").send_keys(text + Keys.ENTER)

    def errors(self):
        return [row for row in self.browser.get_log("browser") if row["level"] == "SEVERE"]

    def picture(self, name):
        folder = os.environ.get("TARN_PAGE_PICTURES")
        if folder:
            self.browser.save_screenshot(str(pathlib.Path(folder) / f"{name}.png"))


def test_a_conversation_with_forks(browser, server):
    page = Page(browser, server.port)
    page.say("Hello")
    page.told("stop")
    assert "Hello" in page.log() and "cd" in page.log() and "ab" in page.log()
    assert "8 tokens read, 0 known" in page.named("figures").text
    assert len(page.rows()) == 1
    page.press("Mark")
    page.told("Mark:")
    page.press("Fork")
    page.told("Fork:")
    page.until(lambda: len(page.rows()) == 2)
    page.say("Hi")
    page.told("known; stop")
    assert "6 tokens read, 14 known" in page.named("figures").text
    page.picture("light")
    # Where the fork went on, the first session ends.
    page.named("compare").click()
    page.until(lambda: "14 tokens in common" in page.named("parting").text)
    assert "(ends)" in page.named("parting").text
    # The probability of a token, with its alternatives.
    token = browser.find_elements(By.CSS_SELECTOR, ".token")[0]
    webdriver.ActionChains(browser).move_to_element(token).perform()
    page.until(lambda: page.named("tip").is_displayed())
    assert "%" in page.named("tip").text
    page.press("Back")
    page.told("Back:")
    assert not page.errors()


def test_parked_reloaded_and_resumed(browser, server, models, tmp_path):
    page = Page(browser, server.port)
    page.say("Hello")
    page.told("stop")
    page.press("Park")
    page.told("Park:")
    page.until(lambda: "parked" in page.rows()[0].text)
    browser.refresh()
    page.until(lambda: len(page.rows()) == 1)
    page.rows()[0].find_element(By.CLASS_NAME, "name").click()
    page.until(lambda: "cd" in page.log())
    page.say("Hi")
    page.told("6 tokens read, 14 known")
    # The server goes and comes back under its address.
    port = server.port
    assert server.end() == 0
    page.say("Lost")
    page.told("The connection is lost")
    again = Server(models / "talks", "--park-dir", tmp_path, "--port", port)
    try:
        page.until(lambda: "lost" not in page.named("figures").text)
        page.say("Back")
        page.told("known; stop")
    finally:
        again.end()


def test_text_is_never_markup(browser, server):
    page = Page(browser, server.port)
    page.say("<img src=x onerror=alert(1)><b>bold</b>")
    page.told("stop")
    assert "<img src=x onerror=alert(1)>" in page.log()
    assert not browser.find_elements(By.CSS_SELECTOR, "#log img, #log script")
    assert not page.errors()


def test_the_policy_lets_nothing_else_in(browser, server):
    page = Page(browser, server.port)
    blocked = browser.execute_async_script(
        "const done = arguments[0];"
        "addEventListener('securitypolicyviolation', (e) => done(e.violatedDirective));"
        "const s = document.createElement('script'); s.textContent = 'window.x = 1';"
        "document.head.append(s);"
    )
    assert blocked.startswith("script-src")
    assert browser.execute_script("return window.x") is None
    status, text = server.ask("GET", "/")
    assert status == 200 and "http://" not in text and "https://" not in text
    assert page.named("send").is_displayed()


@pytest.mark.parametrize("dark", [False, True])
def test_a_narrow_screen_and_the_keyboard(browser, server, dark):
    scheme = "dark" if dark else "light"
    browser.execute_cdp_cmd(
        "Emulation.setEmulatedMedia",
        {"features": [{"name": "prefers-color-scheme", "value": scheme}]},
    )
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": 360, "height": 740, "deviceScaleFactor": 1, "mobile": True},
    )
    try:
        page = Page(browser, server.port)
        page.say("Hello")
        page.told("stop")
        width = "return document.documentElement.scrollWidth"
        assert browser.execute_script(width) <= 360
        page.picture(f"narrow-{scheme}")
        # Every control is reached with the Tab key and has a name.
        unnamed = browser.execute_script(
            "return [...document.querySelectorAll('button, input, select, textarea')].filter("
            "(e) => !(e.textContent.trim() || e.getAttribute('aria-label') ||"
            " (e.labels && e.labels.length))).map((e) => e.outerHTML)"
        )
        assert unnamed == []
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
