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
# Each answer is markup, then code; both special to a careless page.
HOSTILE = "<img src=x onerror=alert(1)>"
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
    # The token that spells a call of a tool spells markup instead.
    tokenizer = bigram_model.tokenizer_json()
    for row in tokenizer["added_tokens"]:
        if row["content"] == bigram_model.CALL:
            row["content"] = HOSTILE
    bigram_model.write_bigram_model(
        root / "hostile",
        {"<|assistant|>": bigram_model.CALL, bigram_model.CALL: "<|end|>"},
        tokenizer=tokenizer,
    )
    bigram_model.write_bigram_model(root / "endless", {"<|assistant|>": "e"})
    return root


@pytest.fixture
def server(models, tmp_path):
    one = Server(models / "talks", models / "hostile", models / "endless", "--park-dir", tmp_path)
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
        self.forget()
        self.rows()[row].find_element(By.XPATH, f".//button[text()='{label}']").click()

    def told(self, part):
        self.until(lambda: part in self.named("figures").text)

    def forget(self):
        """What was told before is not taken for what is told next."""
        self.browser.execute_script("document.getElementById('figures').textContent = ''")

    def say(self, text):
        self.forget()
        self.named("text").send_keys(text + Keys.ENTER)

    def model(self, name):
        self.browser.find_element(By.CSS_SELECTOR, f"#model option[value={name}]").click()

    def set(self, name, value):
        details = self.browser.find_element(By.TAG_NAME, "details")
        if not details.get_attribute("open"):
            details.find_element(By.TAG_NAME, "summary").click()
        details.find_element(By.NAME, name).send_keys(str(value))

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
    bold = browser.find_elements(By.CSS_SELECTOR, "#parting b")
    assert [one.text for one in bold] == ["(ends)", "<|end|>"]
    # The probability of a token, with its alternatives.
    token = browser.find_elements(By.CSS_SELECTOR, ".token")[0]
    webdriver.ActionChains(browser).move_to_element(token).perform()
    page.until(lambda: page.named("tip").is_displayed())
    assert "%" in page.named("tip").text
    # The state is as large as it was: a line, over the tokens.
    line = browser.find_element(By.CSS_SELECTOR, "#chart .line-state").get_attribute("points")
    assert len(line.split()) > 8
    # Keys reach the probabilities too.
    page.named("log").send_keys(Keys.ARROW_LEFT)
    assert browser.switch_to.active_element.get_attribute("class") == "token"
    # Back in the fork, to the mark that it inherited: the first turn stays.
    page.press("Back", 1)
    page.told("Back:")
    page.until(lambda: "Hi" not in page.log())
    assert "Hello" in page.log()
    held = browser.switch_to.active_element
    assert (held.text, held.find_element(By.XPATH, "./ancestor::li")) == ("Back", page.rows()[1])
    page.say("Ho")
    page.told("6 tokens read, 14 known")
    # Two forks that went on differently: the first token that is not the same.
    page.press("Fork", 0)
    page.told("Fork:")
    assert len(page.rows()) == 3
    page.say("Hi")
    page.told("6 tokens read, 14 known")
    names = [row.find_element(By.CLASS_NAME, "name").text for row in page.rows()]
    for select, name in zip(["left", "right"], names[1:]):
        page.named(select).find_element(By.CSS_SELECTOR, f"option[value='{name}']").click()
    page.named("compare").click()
    page.until(lambda: "17 tokens in common" in page.named("parting").text)
    bold = browser.find_elements(By.CSS_SELECTOR, "#parting b")
    assert sorted(one.text for one in bold) == ["i", "o"]
    assert not page.errors()


def test_escape_stops_and_shift_enter_does_not_send(browser, server):
    page = Page(browser, server.port)
    page.model("endless")
    page.set("max_tokens", 20000)
    page.named("text").send_keys("a" + Keys.SHIFT + Keys.ENTER + Keys.NULL + "b")
    assert page.named("text").get_attribute("value") == "a\nb"
    assert page.log() == ""
    page.named("text").send_keys(Keys.ENTER)
    page.until(lambda: browser.find_elements(By.CSS_SELECTOR, "#log .answer > span > *"))
    page.named("text").send_keys(Keys.ESCAPE)
    page.until(lambda: page.named("send").is_enabled())
    page.until(lambda: not server.ask("GET", "/v1/sessions?model=endless")[1]["data"][0]["busy"])
    assert not page.errors()


def test_a_conversation_of_another_tab_is_not_taken_back(browser, server):
    page = Page(browser, server.port)
    page.say("Hello")
    page.told("stop")
    browser.execute_script("sessionStorage.clear()")
    browser.refresh()
    page.until(lambda: len(page.rows()) == 1)
    page.rows()[0].find_element(By.CLASS_NAME, "name").click()
    page.until(lambda: "cd" in page.log())
    page.named("text").send_keys("x" + Keys.ENTER)
    page.told("1 tokens read, 14 known")


def test_a_key_is_asked_for_and_kept_in_memory(browser, models, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("open-sesame\n")
    keys.chmod(0o600)
    server = Server(models / "talks", "--api-key-file", keys)
    try:
        browser.get(f"http://localhost:{server.port}/")
        figures = lambda: browser.find_element(By.ID, "figures").text  # noqa: E731
        WebDriverWait(browser, PATIENCE, 0.05).until(lambda _: figures())
        browser.find_element(By.ID, "key").send_keys("open-sesame" + Keys.TAB)
        model = browser.find_element(By.ID, "model")
        WebDriverWait(browser, PATIENCE, 0.05).until(lambda _: model.get_attribute("value"))
        kept = browser.execute_script(
            "return JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie])"
        )
        assert "open-sesame" not in kept
    finally:
        server.end()


def test_without_the_page(models):
    server = Server(models / "talks", "--no-page")
    try:
        assert server.ask("GET", "/")[0] == 404
    finally:
        server.end()


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
    page.model("hostile")

    def answers():
        return browser.find_elements(By.CSS_SELECTOR, "#log .answer")

    page.say("`code` and **bold**")
    page.told("stop")
    page.until(lambda: [e.text for e in answers()] == [HOSTILE])
    assert browser.find_element(By.CSS_SELECTOR, "#log .user code").text == "code"
    assert browser.find_element(By.CSS_SELECTOR, "#log .user b").text == "bold"
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
        browser.execute_script("document.activeElement.blur()")
        reached = set()
        for _ in range(60):
            browser.switch_to.active_element.send_keys(Keys.TAB)
            reached.add(browser.switch_to.active_element.text)
        assert {
            "Send",
            "New session",
            "Fork",
            "Mark",
            "Back",
            "Park",
            "Delete",
            "Compare",
        } <= reached
        browser.execute_script("scrollTo(0, document.body.scrollHeight)")
        page.picture(f"narrow-{scheme}-end")
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
