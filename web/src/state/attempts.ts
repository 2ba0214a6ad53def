import { randomId } from "../ids";
import type { MessageView } from "./message";
import { patiently } from "./patience";

/** Gives a request the idempotency key of its earlier attempt, as long as it asks for the same: however often it goes out, it counts once. */
export class Attempts {
  private last: { print: string; key: string } | undefined;

  /** Runs a request until it is answered. `print` is the same for two requests that ask for the same. */
  async run<T>(view: MessageView, print: string, request: (key: string) => Promise<T>): Promise<T> {
    if (this.last?.print !== print) this.last = { print, key: randomId() };
    const { key } = this.last;
    const result = await patiently(view.offline, () => request(key));
    this.last = undefined;
    return result;
  }
}
