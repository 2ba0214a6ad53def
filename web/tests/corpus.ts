/** Texts as models write them, and the awkward ones among them. */
export const CORPUS: readonly string[] = [
  "# A title\n\nA paragraph with **bold**, *italic*, `code` and a [link](https://example.org/a?b=c).\n\nAnother one\nover two lines.\n",
  "1. one\n2. two\n   - nested\n   - more\n\n   a paragraph in the item\n3. three\n\nAfter the list.\n",
  "- a\n- b\n\n- c after an empty line\n\n\n- d after two\n\ntext\n\n- e\n",
  "```python\ndef f(x):\n    return x  # a comment\n```\n\nThen text.\n\n~~~\nplain\n~~~\n",
  "```\nan open fence\n\nwith empty lines\n\n# and a title in it\n",
  "````markdown\n```js\ninside\n```\n````\n\nafter\n",
  "| a | b |\n|---|:-:|\n| 1 | 2 |\n| 3 | 4 |\n\nafter the table\n\n| only a head |\n",
  "A title by underlining\n===\n\nanother\n---\n\ntext\n\n---\n\n***\n",
  "> a quote\n> over lines\nlazily continued\n\n> another\n>\n> > nested\n\nend\n",
  "It costs $4, then $5.50 and $6k; but $x^2$ is math, and so is \\(a+b\\).\n\n$$\n\\frac{1}{2}\n$$\n\n\\[ e^{i\\pi} \\]\n\nText with $$ open and never closed\n\nmore\n",
  "<div>raw html</div>\n\n<!-- a comment\nover lines -->\n\n<script>alert(1)</script>\n\ntext <b>inline</b> text\n",
  "<details>\n<summary>more</summary>\n\nhidden **text**\n\n</details>\n\nend\n",
  "    indented code\n    second line\n\ntext\n\n\tby a tab\n\nend\n",
  "- [x] done\n- [ ] open\n  continued\n\n* other list\n+ third kind\n",
  "A [reference][r] that is defined later.\n\nMore text.\n\nEven more.\n\n[r]: https://example.org/r \"title\"\n\nend [r]\n",
  "Footnote-like[^1] text.\n\n[^1]: is kept as text\n\nend\n",
  "Two[^a] marks[^2], one of them before its note.\n[^a]: a note with `code`\nover two lines\n[^2]: https://example.org\n\nend[^a]\n\n[^open]",
  "日本語の段落。\n\n- 項目\n- もう一つ\n\n👨‍👩‍👧 family\r\n\r\nWindows lines\r\nhere\r\n",
  "line one\\\nhard break  \nspaces break\n\n\\* not a list\n\n1986\\. not a number\n",
  "A table in a list:\n\n- item\n\n  | a | b |\n  |---|---|\n  | 1 | 2 |\n\n- next\n\n  ```js\n  code();\n  ```\n\nend\n",
  "![picture](https://example.org/p.png)\n\n<https://example.org> and https://example.org/bare and a@b.example\n\n# end",
  "```mermaid\ngraph TD\n  A --> B\n```\n\n## Steps\n\n1. First\n\n   ```sh\n   run me\n   ```\n\n2. Second\n\n10. Tenth\n",
  "*emphasis that\n\nnever* closes **and\n\nthis** neither `code\n\nspan` across\n",
  "Title\n=\n\n-\n- \n-  x\n\n+\n\n1)\n2) y\n",
  "a\u2028b\u2029c \u00a0 d\n\n\u202eabc\u202c\n\nx\u0000y\n",
  "$\n\n$$\n\n$$$\n\n\\(\n\n\\)\n\n\\[\n\n\\]\n",
];

/** Pieces that random texts are put together from. */
export const PIECES: readonly string[] = [
  "word ", "two words", "\n", "\n\n", "\n\n\n", "# ", "## h\n", "- ", "- item\n", "  - nested\n", "1. ", "2. two\n", "> ", "```", "```js\n", "~~~\n", "    code\n", "| a | b |\n", "|---|---|\n", "| 1 | 2 |\n",
  "---\n", "===\n", "**", "*", "_", "`", "$", "$$", "$$\n", "\\(", "\\)", "\\[", "\\]", "$4 ", "<div>\n", "</div>\n", "<!-- ", "-->", "[a](", "https://example.org)", "![i](", "[r]: /x\n", "[^1]", "[^1]: note\n", "\\", "\r\n", "é", "🙂", "\t", " ",
];
