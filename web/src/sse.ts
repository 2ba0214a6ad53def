/** One dispatched server-sent event. `id` is present only when the event itself carried one. */
export interface SseEvent {
  readonly type: string;
  readonly data: string;
  readonly id: string | undefined;
}

/**
 * A strict incremental parser of `text/event-stream` (WHATWG HTML, "Interpreting an event stream").
 * Lines end at CR, LF or CRLF and nowhere else; an event that the stream's end cuts short is never dispatched.
 * Feed it decoded text; `push` returns the events that became whole.
 */
export class SseParser {
  private tail = "";
  private skipLineFeed = false;
  private type = "";
  private data: string[] = [];
  private id: string | undefined;

  push(chunk: string): SseEvent[] {
    let text = chunk;
    if (this.skipLineFeed && text.length > 0) {
      if (text.charCodeAt(0) === 10) text = text.slice(1);
      this.skipLineFeed = false;
    }
    const events: SseEvent[] = [];
    let start = 0;
    for (let at = 0; at < text.length; at += 1) {
      const code = text.charCodeAt(at);
      if (code !== 10 && code !== 13) continue;
      this.line(this.tail + text.slice(start, at), events);
      this.tail = "";
      if (code === 13) {
        if (at + 1 === text.length) this.skipLineFeed = true;
        else if (text.charCodeAt(at + 1) === 10) at += 1;
      }
      start = at + 1;
    }
    this.tail += text.slice(start);
    return events;
  }

  private line(line: string, events: SseEvent[]): void {
    if (line === "") {
      if (this.data.length > 0) events.push({ type: this.type || "message", data: this.data.join("\n"), id: this.id });
      this.type = "";
      this.data = [];
      this.id = undefined;
      return;
    }
    const colon = line.indexOf(":");
    if (colon === 0) return;
    const field = colon < 0 ? line : line.slice(0, colon);
    let value = colon < 0 ? "" : line.slice(colon + 1);
    if (value.startsWith(" ")) value = value.slice(1);
    if (field === "event") this.type = value;
    else if (field === "data") this.data.push(value);
    else if (field === "id" && !value.includes("\0")) this.id = value;
  }
}
