"""What a person does in the chat window, by the hooks of the contract."""

from __future__ import annotations

from dataclasses import dataclass

from playwright.sync_api import Locator, Page, expect

from tests.system.served import Server


@dataclass(slots=True)
class Chat:
    page: Page
    server: Server

    @property
    def composer(self) -> Locator:
        return self.page.get_by_test_id("composer")

    @property
    def messages(self) -> Locator:
        return self.page.get_by_test_id("message")

    @property
    def answer(self) -> Locator:
        return self.page.locator("[data-testid=message][data-role=assistant]").last

    @property
    def conversation(self) -> str:
        return self.page.url.rpartition("/")[2]

    def use(self, model: str) -> None:
        """Choose the model of the next messages."""
        self.page.locator(".model-picker").click()
        self.page.get_by_role("menuitemradio", name=model).click()

    def send(self, text: str) -> None:
        self.composer.fill(text)
        self.composer.press("Enter")

    def ended(self, status: str = "complete") -> str:
        """Wait for the answer's end; its text on the screen."""
        expect(self.answer).to_have_attribute("data-status", status)
        return self.shown()

    def ask(self, text: str) -> str:
        self.send(text)
        return self.ended()

    def paste(self, text: str) -> None:
        """Put ``text`` into the message field as the clipboard would."""
        self.composer.evaluate(
            """(field, text) => {
              const data = new DataTransfer();
              data.setData("text/plain", text);
              field.dispatchEvent(new ClipboardEvent("paste", { clipboardData: data, bubbles: true, cancelable: true }));
            }""",
            text,
        )

    def shown(self) -> str:
        return self.answer.locator(".prose").inner_text().rstrip("\n")

    def growing(self, letters: int = 20) -> None:
        """Wait until the answer shows at least so many letters, while it runs."""
        expect(self.answer).to_have_attribute("data-status", "streaming")
        expect(self.answer.locator(".prose")).to_have_text(_at_least(letters))

    def stored(self) -> str:
        """The answer's text in the store."""
        message_id = self.answer.get_attribute("data-message-id")
        assert message_id is not None
        return str(self.server.person().message(self.conversation, message_id)["content"])

    def copied(self) -> str:
        """What the button under the answer puts into the clipboard: the answer's whole text, byte for byte."""
        self.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        self.answer.get_by_test_id("copy").click()
        expect(self.answer.get_by_role("button", name="Copied")).to_be_visible()
        return str(self.page.evaluate("navigator.clipboard.readText()"))

    def check_whole(self) -> None:
        """Text of the page and text copied are the stored text, byte for byte (the reference engine's words are one paragraph)."""
        dom = str(self.answer.locator(".prose").evaluate("prose => prose.textContent"))
        stored = self.stored()
        assert stored
        assert dom == stored, (dom, stored)
        copied = self.copied()
        assert copied == stored, (copied, stored)

    def same_as_stored(self) -> bool:
        return words(self.shown()) == words(self.stored())


def words(text: str) -> list[str]:
    return text.split()


def _at_least(letters: int) -> object:
    import re

    return re.compile(r"[\s\S]{" + str(letters) + ",}")
