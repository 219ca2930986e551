"""A page of a real browser, watched, and text that would like to be more than text."""

from playwright.sync_api import Page

HOSTILE = "<script>console.error('ran')</script><img src=http://127.0.0.1:9/x onerror=alert(1)>"
"""What a page must show as it is."""


class Watched:
    """A page, with all that it complains about and asks for."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.complaints: list[str] = []
        self.requests: list[str] = []
        page.on("console", lambda message: self.complaints.append(message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("dialog", lambda dialog: self.complaints.append(dialog.message))
        page.on("request", lambda request: self.requests.append(request.url))

    def asked_for(self) -> list[str]:
        return [url for url in self.requests if not url.startswith("data:")]
