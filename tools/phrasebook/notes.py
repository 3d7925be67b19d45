"""The fixed sentences of the lecture notes, with the tags that align them."""

from phrasebook import slots
from phrasebook.tokens import Token

END = slots.ROOT << 4 | slots.STOP
TODAY, WEATHER, IS, GOOD, OF = 4097, 4098, 4099, 4100, 4101
HOW, DARE, YOU = 4102, 4103, 4104

# The last token of each is the closing mark.
NOTES: tuple[dict[str, tuple[Token, ...]], ...] = (
    {
        "en": (("Today", TODAY), ("'s", OF), ("weather", WEATHER), ("is", IS), ("good", GOOD), (".", END)),
        "fr": (("le", 0), ("temps", WEATHER), ("est", IS), ("beau", GOOD), ("aujourd'hui", TODAY), (".", END)),
        "de": (("das", 0), ("Wetter", WEATHER), ("ist", IS), ("heute", TODAY), ("schön", GOOD), (".", END)),
        "zh": (("今天", TODAY), ("天气", WEATHER), ("很", IS), ("好", GOOD), ("。", END)),
    },
    {
        "en": (("HOW", HOW), ("DARE", DARE), ("YOU", YOU), ("!", END)),
        "fr": (("comment", HOW), ("oses", DARE), ("-tu", YOU), ("!", END)),
        "de": (("wie", HOW), ("kannst", DARE), ("du", YOU), ("es", 0), ("wagen", DARE), ("!", END)),
        "zh": (("你", YOU), ("怎么", HOW), ("敢", DARE), ("！", END)),
    },
)
