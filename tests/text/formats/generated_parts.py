"""What the messages of generated catalogues are made of."""

WORDS = ["Save", "the", "file", "now!", "Größe,", "(old)", "日本語", "100%", "don't", "a\tb", "№", "x_y", "…", "x2%%"]
PLACEHOLDERS = [
    *("%s", "%d", "%1$s", "%(name)s", "%-5.2f", "%%", "{0}", "{name}", "{{x}}", "${y}", "%1", "$HOME"),
    *("<b>", "</b>", "<br/>", '<a href="%s">', "</a>", "&amp;", "&nbsp;", "\\n", "https://a.b/%s", "--help", "\n"),
    *("%*1$d", "%2$*1$d", "%-*.*f", "%I64d", "%<PRIu64>", "%(a(b)c)s", "100%%", "1,5%%"),
    *("%d%%", "%s%s", "%5.1f%%", "{0}{1}", "{a}{b}%s", "%1$s%2$s", "%(a)s%(b)s", "${y}%d", "<br/>{0}", "&nbsp;%s%%"),
]
"""Those of the last line touch each other."""
INLINE = ['<x id="{n}"/>', '<ph id="{n}">&lt;i></ph>', '<g id="{n}">', '<bpt id="{n}">a</bpt>']
CLOSING = {INLINE[2]: "</g>", INLINE[3]: '<ept id="{n}">b</ept>'}
