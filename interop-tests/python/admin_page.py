"""Drives the administration page in headless Chromium.

Usage: admin_page.py FUNCTION BASE-URL [ARGUMENT...]; admin_page.py --list prints the functions. Each function ends with a check
that the browser has reported no error and no violation of the page's policy.
"""

import base64
import contextlib
import http.server
import os
import pathlib
import signal
import sys
import tempfile
import threading
import urllib.parse

from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

# Seconds for a condition on a loaded machine.
PATIENCE = 40

FLAGS = """
    --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --disable-background-networking
    --disable-component-update --disable-sync --no-first-run --lang=en
""".split()

# Collects what the page's policy blocks, and errors of scripts.
WATCH = """
    window.complaints = [];
    document.addEventListener("securitypolicyviolation",
        (event) => complaints.push(`policy: ${event.violatedDirective} ${event.blockedURI}`));
    window.addEventListener("error", (event) => complaints.push(`error: ${event.message}`));
    window.addEventListener("unhandledrejection", (event) => complaints.push(`rejection: ${event.reason}`));
"""


class Page:
    """A browser that shows the page."""

    def __init__(self, driver, base):
        self.driver = driver
        self.base = base
        self.run("Page.addScriptToEvaluateOnNewDocument", source=WATCH)

    def run(self, command, **arguments):
        return self.driver.execute_cdp_cmd(command, arguments)

    def resize(self, width, height):
        self.run("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def prefer(self, scheme):
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.run("Emulation.setEmulatedMedia", features=features)

    def open(self):
        self.driver.get(self.base)
        self.until("the first data", lambda: self.text("#phase") != "")

    def until(self, what, condition):
        def holds(_):
            # A row may go between its search and its use.
            with contextlib.suppress(StaleElementReferenceException):
                return condition()
            return False

        return WebDriverWait(self.driver, PATIENCE, poll_frequency=0.1).until(holds, f"waiting for {what}")

    def all(self, selector):
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def one(self, selector):
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def text(self, selector):
        return self.one(selector).get_attribute("textContent")

    def script(self, source, *arguments):
        return self.driver.execute_script(source, *arguments)

    def press(self, *keys):
        for key in keys:
            webdriver.ActionChains(self.driver).send_keys(key).perform()

    def tab_to(self, what, is_there):
        """Presses Tab until the focused element is the wanted one, and checks that each stop shows its focus."""
        for _ in range(400):
            self.press(Keys.TAB)
            focused = self.driver.switch_to.active_element
            if is_there(focused):
                shown = self.script("return getComputedStyle(arguments[0]).outlineStyle", focused)
                assert shown != "none", f"{what} does not show its focus"
                return focused
        raise AssertionError(f"Tab does not reach {what}")

    def updates(self, count):
        """Waits until the page has shown newer data this often."""
        for _ in range(count):
            before = self.text("#age").split(",")[0]
            self.until("newer data", lambda: self.text("#age").split(",")[0] != before)

    def row(self, path):
        """The row of the transfer with this path."""
        for row in self.all("#transfers-rows tbody tr"):
            if path in row.get_attribute("textContent"):
                return row
        return None

    def picture(self, file):
        shot = self.run("Page.captureScreenshot", format="png")
        pathlib.Path(file).write_bytes(base64.b64decode(shot["data"]))

    def check(self, expected=lambda message: False):
        """No error on the console and no violation of the policy, apart from those that are expected."""
        found = self.script("return window.complaints ?? []")
        found += [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"]
        found = [message for message in found if not expected(message)]
        assert not found, found


def shows_transfers(page, *paths):
    """Running transfers are rows that change, with what is known of them."""
    page.open()
    for path in paths:
        page.until(f"a row of {path}", lambda: page.row(path))
    first = page.row(paths[0])
    assert "anonymous" in first.text, first.text
    assert "sends" in first.text, first.text
    page.until("a rate", lambda: "MB/s" in page.row(paths[0]).text or "kB/s" in page.row(paths[0]).text)
    bar = page.row(paths[0]).find_element(By.CSS_SELECTOR, "progress")
    before = float(bar.get_attribute("value"))
    page.until("progress", lambda: float(bar.get_attribute("value")) > before)
    assert page.row(paths[0]) == first, "a row keeps its element"
    page.until("the number of transfers", lambda: page.text("#transfers-number") == f"({len(paths)})")
    page.until("the sessions", lambda: len(page.all("#sessions-rows tbody tr")) == len(paths))
    # The filter, and the order by path in both directions.
    page.one("#transfers-filter").send_keys(paths[-1])
    page.until("one row", lambda: len(page.all("#transfers-rows tbody tr")) == 1)
    page.one("#transfers-filter").clear()
    page.one("#transfers-filter").send_keys(" ")
    page.until("all rows", lambda: len(page.all("#transfers-rows tbody tr")) == len(paths))
    head = page.one("#transfers-rows thead th:nth-child(2)")
    for direction, expected in [("ascending", sorted(paths)), ("descending", sorted(paths, reverse=True))]:
        head.find_element(By.CSS_SELECTOR, "button").click()
        assert head.get_attribute("aria-sort") == direction
        shown = [cell.text for cell in page.all("#transfers-rows tbody tr .path")]
        assert shown == expected, (direction, shown)


def ends_by_keyboard(page, path):
    """Tab and Enter alone reach the transfer, cancel the question once, and end the transfer."""
    page.open()
    row = page.until(f"a row of {path}", lambda: page.row(path))
    number = row.get_attribute("data-id")
    label = f"End transfer {number} "
    is_button = lambda node: (node.get_attribute("aria-label") or "").startswith(label)
    page.tab_to("the button of the transfer", is_button)
    page.press(Keys.ENTER)
    page.until("the question", lambda: page.one("#confirm").is_displayed())
    assert path in page.one("#confirm").text
    page.press(Keys.ESCAPE)
    page.until("the question to close", lambda: not page.one("#confirm").is_displayed())
    assert is_button(page.driver.switch_to.active_element), "the focus returns"
    page.updates(1)
    assert is_button(page.driver.switch_to.active_element), "updates do not take the focus"
    page.press(Keys.ENTER)
    page.until("the question", lambda: page.one("#confirm").is_displayed())
    page.tab_to("the confirmation", lambda node: node.get_attribute("id") == "confirm-button")
    page.press(Keys.ENTER)
    page.until("the result", lambda: f"Transfer {number} is being ended" in page.text("#result"))
    # The row stays, marked, as long as the focus is in it.
    page.until("the end", lambda: "ended" in page.row(path).get_attribute("class"))
    page.tab_to("a place outside the table", lambda node: not is_button(node))
    page.until("the row to go", lambda: page.row(path) is None)


def keeps_focus_and_selection(page, path):
    """Updates change neither the focus nor a selection."""
    page.open()
    page.until(f"a row of {path}", lambda: page.row(path))
    page.script("document.getSelection().selectAllChildren(arguments[0].querySelector('.path'))", page.row(path))
    field = page.one("#transfers-filter")
    field.send_keys(path)
    page.script("document.getSelection().selectAllChildren(arguments[0].querySelector('.path'))", page.row(path))
    page.updates(3)
    assert page.script("return String(document.getSelection())").strip() == path
    field.click()
    page.updates(2)
    assert page.driver.switch_to.active_element == field
    assert field.get_attribute("value") == path


def shows_hostile_names(page, path):
    """A path with markup is text."""
    page.open()
    row = page.until("the row", lambda: page.row(path))
    shown = row.find_element(By.CSS_SELECTOR, ".path").get_attribute("textContent")
    assert shown == path, shown
    assert not page.all("img"), "an element was made of a name"
    row.find_element(By.CSS_SELECTOR, "summary").click()
    page.until("the details", lambda: path in page.row(path).find_element(By.CSS_SELECTOR, "dl").text)
    page.row(path).find_element(By.CSS_SELECTOR, "td:last-child button").click()
    page.until("the question", lambda: path in page.one("#confirm").text)
    page.press(Keys.ESCAPE)
    page.updates(1)
    assert not page.all("img"), "an element was made of a name"


# The contrast of each visible text with the colour behind it (WCAG 2.2, 1.4.3), as [ratio, text]. Less than 4.5 is too little.
CONTRASTS = """
    const channels = (color) => color.match(/[\\d.]+/g).map(Number);
    const luminance = (color) => {
        const [r, g, b] = channels(color).slice(0, 3).map((value) => value / 255)
            .map((value) => value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const behind = (node) => {
        for (let at = node; at; at = at.parentElement) {
            const color = getComputedStyle(at).backgroundColor;
            if (channels(color).length === 3 || channels(color)[3] > 0) return color;
        }
        return getComputedStyle(document.body).backgroundColor;
    };
    const poor = [];
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    let seen = 0;
    while (walker.nextNode()) {
        const node = walker.currentNode.parentElement;
        if (!walker.currentNode.textContent.trim() || !node.checkVisibility() || node.closest("noscript")) continue;
        const style = getComputedStyle(node);
        const color = node.namespaceURI.endsWith("svg") ? style.fill : style.color;
        const [a, b] = [luminance(color), luminance(behind(node))].sort((x, y) => y - x);
        const ratio = (a + 0.05) / (b + 0.05);
        seen += 1;
        if (ratio < 4.5) poor.push([ratio, walker.currentNode.textContent]);
    }
    return [seen, poor];
"""


def is_readable_in_dark_and_light(page):
    """Both appearances have enough contrast, and differ."""
    page.open()
    page.until("rows", lambda: page.all("#transfers-rows tbody tr"))
    backgrounds = set()
    for scheme in ["light", "dark"]:
        page.prefer(scheme)
        backgrounds.add(page.script("return getComputedStyle(document.body).backgroundColor"))
        seen, poor = page.script(CONTRASTS)
        assert seen > 100, seen
        assert not poor, (scheme, poor)
    assert len(backgrounds) == 2, backgrounds


def fits_a_narrow_window(page):
    """At 320 pixels, which is 1280 pixels at 400 %, only tables scroll sideways (WCAG 2.2, 1.4.10)."""
    page.resize(320, 640)
    page.open()
    page.until("rows", lambda: page.all("#transfers-rows tbody tr"))
    page.one("#values summary").click()
    page.updates(1)
    width = page.script("return document.documentElement.scrollWidth")
    wide = page.script(
        """return Array.from(document.querySelectorAll("body *"))
            .filter((node) => !node.closest(".scroll") && !node.matches(".skip") && node.getBoundingClientRect().right > 321)
            .map((node) => node.outerHTML.slice(0, 80))"""
    )
    assert width <= 320, (width, wide)
    assert not wide, wide
    dialog = page.one("#transfers-rows tbody tr td:last-child button")
    page.script("arguments[0].click()", dialog)
    page.until("the question", lambda: page.one("#confirm").is_displayed())
    box = page.one("#confirm").rect
    assert box["x"] >= 0 and box["x"] + box["width"] <= 320, box


def is_structured(page):
    """Tables have captions and heads with a scope, controls have names, and numbers of elements are unique."""
    page.open()
    page.until("rows", lambda: page.all("#transfers-rows tbody tr"))
    faults = page.script(
        """const faults = [];
        for (const table of document.querySelectorAll("table")) {
            if (!table.caption?.textContent) faults.push(`no caption: ${table.id}`);
            if (table.querySelector("th:not([scope])")) faults.push(`no scope: ${table.id}`);
        }
        for (const control of document.querySelectorAll("input, select"))
            if (!control.labels?.length) faults.push(`no label: ${control.id}`);
        for (const button of document.querySelectorAll("button"))
            if (button.checkVisibility() && !(button.ariaLabel || button.textContent.trim())) faults.push("a button has no name");
        for (const plot of document.querySelectorAll("svg"))
            if (plot.getAttribute("role") !== "img" || !plot.getAttribute("aria-label")) faults.push("a plot has no text");
        const ids = Array.from(document.querySelectorAll("[id]"), (node) => node.id);
        faults.push(...ids.filter((id, index) => ids.indexOf(id) !== index).map((id) => `twice: ${id}`));
        const dangling = document.querySelectorAll("[aria-labelledby], [aria-describedby], label[for]");
        for (const node of dangling)
            for (const name of ["aria-labelledby", "aria-describedby", "for"])
                if (node.hasAttribute(name) && !document.getElementById(node.getAttribute(name))) faults.push(`dangling ${name}`);
        return faults"""
    )
    assert not faults, faults
    assert page.one("#result").get_attribute("aria-live") == "polite"


def shows_and_drains_nodes(page, used, lost):
    """A data node that is used and one that is lost; the first one is drained and resumed."""
    page.open()

    def row(name):
        for one in page.all("#nodes-rows tbody tr"):
            if one.get_attribute("data-id") == name:
                return one
        return None

    page.until("a node that is used", lambda: row(used) and " up " in f" {row(used).text} ".replace("\n", " "))
    page.until("why the other one is not", lambda: "Connection refused" in row(lost).text and "down" in row(lost).text)
    assert page.one("#nodes-link").is_displayed()
    page.until("a warning", lambda: "Data nodes that cannot be used: 1 of 2." in page.text("#attention"))
    press = lambda: page.script("arguments[0].click()", row(used).find_element(By.CSS_SELECTOR, "button"))
    label = lambda: row(used).find_element(By.CSS_SELECTOR, "button").text
    assert label() == "Drain"
    press()
    page.until("the question", lambda: page.one("#confirm").is_displayed())
    assert used in page.one("#confirm").text
    page.one("#confirm-button").click()
    page.until("the result", lambda: "is being drained. Transfers left: 0." in page.text("#result"))
    page.until("the state", lambda: "drained" in row(used).text and label() == "Resume")
    assert "an administrator of this server has drained it" in row(used).text
    press()
    page.until("the result", lambda: "gets sessions and transfers again" in page.text("#result"))
    page.until("the state", lambda: label() == "Drain")


def acts_on_the_server(page):
    """The log level, the reload with its report, the end of a session, and drain."""
    page.open()
    page.script("document.getElementById('level').value = 'debug'")
    page.one("#level-form button").click()
    page.until("the result", lambda: "The log level is debug" in page.text("#result"))
    page.until("the level", lambda: "Log leveldebug" in page.text("#facts"))
    page.one("#reload").click()
    page.until("the report", lambda: page.one("#report").is_displayed())
    assert "Needs a restart" in page.one("#report").text
    page.press(Keys.ESCAPE)
    button = page.until("a session", lambda: page.all("#sessions-rows tbody button"))[0]
    page.script("arguments[0].click()", button)
    page.until("the question", lambda: page.one("#confirm").is_displayed())
    page.one("#confirm-button").click()
    page.until("the result", lambda: "is being ended" in page.text("#result"))
    page.script("document.activeElement.blur()")
    page.until("the end of the session", lambda: not page.all("#sessions-rows tbody tr"))
    page.one("#drain").click()
    page.until("the question", lambda: page.one("#confirm").is_displayed())
    page.one("#confirm-button").click()
    page.until("the phase", lambda: page.text("#phase") == "draining" or "cannot be reached" in page.text("#alert"))


def notices_a_lost_server(page, process):
    """The page says that the server is gone, and how old the data is."""
    page.open()
    os.kill(int(process), signal.SIGKILL)
    page.until("the alert", lambda: "cannot be reached" in page.text("#alert"))
    page.until("the age", lambda: " s old" in page.text("#age"))
    assert "stale" in page.one("body").get_attribute("class")
    page.check(lambda message: "ERR_CONNECTION" in message or "ERR_EMPTY_RESPONSE" in message)


def logs_in_with_a_secret(page, secret):
    """The form takes the secret with the keyboard alone, and refuses a wrong one. Only this tab and this port get it."""
    page.driver.get(page.base)
    for shown in ["wrong" * 5, secret]:
        page.until("the form", lambda: page.one("#login").is_displayed())
        page.until("its focus", lambda: page.driver.switch_to.active_element.get_attribute("id") == "token")
        assert page.text("#phase") == "", "data is shown without the secret"
        page.press(shown, Keys.ENTER)
        page.until("the answer", lambda: not page.one("#login").is_displayed() or "not accept" in page.text("#login-hint"))
    page.until("the first data", lambda: page.text("#phase") == "serving")
    page.updates(1)
    page.check(lambda message: "401 (Unauthorized)" in message)
    page.driver.refresh()
    page.until("data after a reload", lambda: page.text("#phase") == "serving")
    page.one("#level-form button").click()
    page.until("the result of an action", lambda: "The log level is" in page.text("#result"))
    heard = requests_of_another_port(page)
    assert heard and not any(secret in head or "ookie" in head for head in heard), heard
    assert page.driver.get_cookies() == []
    page.driver.get(page.base)
    page.until("data in the same tab", lambda: page.text("#phase") == "serving")
    page.tab_to("the end of the login", lambda node: node.get_attribute("id") == "logout")
    page.press(Keys.ENTER)
    page.until("the form", lambda: page.one("#login").is_displayed() and page.text("#phase") == "")
    page.driver.get_log("browser")
    page.driver.get(page.base + "/#token=" + urllib.parse.quote(secret))
    page.until("data for the secret in the address", lambda: page.text("#phase") == "serving")
    assert page.driver.current_url == page.base + "/", "the secret stays in the address"
    page.driver.switch_to.new_window("tab")
    page.driver.get(page.base)
    page.until("the form in another tab", lambda: page.one("#login").is_displayed())
    page.check(lambda message: "401 (Unauthorized)" in message)


def requests_of_another_port(page):
    """The heads of the requests that a server at another port of the same host gets."""
    heard = []

    class Listening(Foreign):
        def do_GET(self):
            heard.append(str(self.headers))
            super().do_GET()

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Listening) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        page.driver.get(f"http://127.0.0.1:{server.server_port}/")
        page.until("its page", lambda: page.driver.title == "foreign")
        assert page.script("return sessionStorage.length") == 0
        server.shutdown()
    return heard


class Foreign(http.server.BaseHTTPRequestHandler):
    """A page of another origin."""

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>foreign</title><form method=post></form>")

    def log_message(self, *_):
        pass


# All ways in which a page may try: it reads, it sends with and without a preflight, and it embeds.
ATTACK = """
    const [base, path, done] = arguments;
    const json = { "Content-Type": "application/json" };
    const attempt = async (name, request) => {
        try {
            const answer = await request;
            return answer.type === "opaque" ? null : `${name}: ${answer.status} ${await answer.text()}`;
        } catch (error) { return null; }
    };
    Promise.all([
        attempt("read", fetch(base + "/status.json")),
        attempt("read with credentials", fetch(base + "/status.json", { credentials: "include" })),
        attempt("opaque read", fetch(base + "/status.json", { mode: "no-cors" })),
        attempt("post", fetch(base + path, { method: "POST", body: "{}", headers: json })),
        attempt("simple post", fetch(base + path, { method: "POST", body: "{}", headers: { "Content-Type": "text/plain" } })),
        attempt("opaque post", fetch(base + path, { method: "POST", body: "{}", mode: "no-cors" })),
    ]).then((results) => done(results.filter(Boolean)));
"""


def refuses_other_origins(page, path):
    """A page of another origin reads nothing and ends nothing."""
    page.open()
    number = page.until(f"a row of {path}", lambda: page.row(path)).get_attribute("data-id")
    page.check()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Foreign) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        page.driver.get(f"http://127.0.0.1:{server.server_port}/")
        action = f"/api/transfers/{number}/end"
        page.driver.set_script_timeout(PATIENCE)
        succeeded = page.driver.execute_async_script(ATTACK, page.base, action)
        assert not succeeded, succeeded
        # A form needs no permission of the other origin.
        page.script(
            """const form = document.forms[0];
            form.action = arguments[0];
            form.enctype = "text/plain";
            form.submit();""",
            page.base + action,
        )
        page.until("the answer", lambda: page.driver.current_url.startswith(page.base))
        assert "foreign" not in page.driver.title
        server.shutdown()
    page.driver.get_log("browser")
    page.open()
    page.updates(2)
    row = page.row(path)
    assert row and row.get_attribute("data-id") == number, "the transfer was ended"


def pictures(page, directory):
    """The pictures of the documentation."""
    page.resize(1280, 900)
    page.open()
    page.until("rows", lambda: len(page.all("#transfers-rows tbody tr")) >= 25)
    page.until("a sample", lambda: "now" in page.text("#plots .readout"))
    page.updates(5)
    for scheme in ["light", "dark"]:
        page.prefer(scheme)
        page.picture(f"{directory}/admin-{scheme}.png")
    page.prefer("light")
    page.script("document.getElementById('history').scrollIntoView({ behavior: 'instant' })")
    page.picture(f"{directory}/admin-history.png")
    page.resize(320, 640)
    page.updates(1)
    page.script("scrollTo({ top: 0, behavior: 'instant' })")
    page.picture(f"{directory}/admin-narrow.png")


FUNCTIONS = [
    shows_transfers,
    ends_by_keyboard,
    keeps_focus_and_selection,
    shows_hostile_names,
    is_readable_in_dark_and_light,
    fits_a_narrow_window,
    is_structured,
    shows_and_drains_nodes,
    acts_on_the_server,
    notices_a_lost_server,
    logs_in_with_a_secret,
    refuses_other_origins,
    pictures,
]


def main():
    if sys.argv[1:] == ["--list"]:
        print("\n".join(function.__name__ for function in FUNCTIONS))
        return
    name, base, *arguments = sys.argv[1:]
    function = next(function for function in FUNCTIONS if function.__name__ == name)
    with tempfile.TemporaryDirectory(prefix="gridhaul-browser-") as directory:
        os.environ["HOME"] = directory
        options = Options()
        options.binary_location = "/usr/bin/chromium"
        for flag in [*FLAGS, f"--user-data-dir={directory}/profile", "--window-size=1280,900"]:
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        driver = webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))
        try:
            page = Page(driver, base)
            function(page, *arguments)
            page.check(lambda message: "net::ERR_" in message)
        finally:
            driver.quit()


if __name__ == "__main__":
    main()
