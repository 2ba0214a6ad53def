/** A small lexical highlighter: comments, strings, numbers and keywords of common languages. It never changes the text. */

const ESCAPES: Record<string, string> = { "&": "&amp;", "<": "&lt;", ">": "&gt;" };

function escape(text: string): string {
  return text.replace(/[&<>]/g, (char) => ESCAPES[char] ?? char);
}

const C_LIKE = /js|jsx|ts|tsx|javascript|typescript|java|c|h|cpp|c\+\+|cs|csharp|go|rust|rs|kotlin|swift|php|scala|dart|css|scss|json|jsonc/;
const HASH_LIKE = /py|python|sh|bash|shell|zsh|ruby|rb|yaml|yml|toml|ini|r|perl|makefile|dockerfile|conf|elixir/;
const DASH_LIKE = /sql|lua|haskell|hs/;

const WORDS = new Set(
  (
    "abstract and as assert async await begin bool boolean break byte case catch char class const continue create def default defer del delete do done " +
    "double elif else elsif end enum esac except export extends false False fi final finally float fn for foreach from func function go goto if impl " +
    "implements import in insert instanceof int interface into is join lambda let local long loop match mod module mut namespace new nil None nonlocal " +
    "not null Null on or order override package pass private protected pub public raise range return select self set short static string struct super " +
    "switch table then this throw throws trait true True try type typedef typeof union unless unsigned until update use using val values var void " +
    "where while with yield SELECT FROM WHERE INSERT INTO UPDATE DELETE CREATE TABLE JOIN LEFT RIGHT INNER OUTER ON AND OR NOT NULL AS ORDER GROUP BY " +
    "LIMIT VALUES SET PRIMARY KEY WITH DISTINCT HAVING UNION"
  ).split(" "),
);

const STRINGS = /"""[\s\S]*?(?:"""|$)|'''[\s\S]*?(?:'''|$)|"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?|`(?:\\.|[^`\\])*`?/.source;
const NUMBERS = /\b0[xXbBoO][\da-fA-F_]+\b|\b\d[\d_]*(?:\.\d+)?(?:[eE][+-]?\d+)?\b/.source;
const NAMES = /[A-Za-z_$][\w$]*/.source;

function grammar(language: string): RegExp | undefined {
  const whole = (pattern: RegExp) => new RegExp(`^(?:${pattern.source})$`).test(language);
  let comments: string | undefined;
  if (whole(C_LIKE)) comments = /\/\/[^\n]*|\/\*[\s\S]*?(?:\*\/|$)/.source;
  else if (whole(HASH_LIKE)) comments = /(?<![\w$])#[^\n]*/.source;
  else if (whole(DASH_LIKE)) comments = /--[^\n]*|\/\*[\s\S]*?(?:\*\/|$)/.source;
  return comments === undefined ? undefined : new RegExp(`(${comments})|(${STRINGS})|(${NUMBERS})|(${NAMES})(\\s*\\()?`, "g");
}

const LIMIT = 40_000;

/** HTML of `code` with `hl-*` spans; plain escaped text for a language that is not known or a very long text. */
export function highlight(code: string, language: string): string {
  const pattern = code.length > LIMIT ? undefined : grammar(language);
  if (pattern === undefined) return escape(code);
  let html = "";
  let at = 0;
  for (const found of code.matchAll(pattern)) {
    const [all, comment, text, number, name, called] = found;
    const kind = comment ? "comment" : text ? "string" : number ? "number" : name && WORDS.has(name) ? "keyword" : called ? "call" : "";
    if (kind === "") continue;
    const body = name ?? all;
    html += `${escape(code.slice(at, found.index))}<span class="hl-${kind}">${escape(body)}</span>`;
    at = found.index + body.length;
  }
  return html + escape(code.slice(at));
}
