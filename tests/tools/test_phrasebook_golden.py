"""Hand-written renderings of explicit trees, one row for each phenomenon, in all four languages."""

from typing import NamedTuple

import pytest

from phrasebook import tree
from phrasebook.lexicon import (
    ADJECTIVES,
    FREQUENCIES,
    INSIDE,
    MANNERS,
    MODALS,
    NOUNS,
    PEOPLE,
    REGIONS,
    RELATIONS,
    TIMES,
    TOWARDS,
    VERBS,
)
from phrasebook.linearise import RENDERERS
from phrasebook.tokens import align
from phrasebook.tree import (
    Age,
    Both,
    Clause,
    Comparison,
    Copula,
    Determiner,
    Echo,
    Existence,
    Gap,
    HowMany,
    Joined,
    NounPhrase,
    OpenQuestion,
    Order,
    Pronoun,
    Question,
    Reported,
    Sentence,
    Statement,
    Tense,
    Wh,
    When,
    WhereIs,
)

N, V, A = NOUNS, VERBS, ADJECTIVES
THE, AN, BARE, THIS = Determiner.THE, Determiner.A, Determiner.BARE, Determiner.THIS
MY, HIS, HER, THEIR = Determiner.MY, Determiner.HIS, Determiner.HER, Determiner.THEIR
ME, YOU, HE, SHE, WE, THEY = Pronoun.I, Pronoun.YOU, Pronoun.HE, Pronoun.SHE, Pronoun.WE, Pronoun.THEY
PAST, FUTURE, PROGRESSIVE, PERFECT = Tense.PAST, Tense.FUTURE, Tense.PROGRESSIVE, Tense.PERFECT
ANNA, PAUL = PEOPLE["Anna"], PEOPLE["Paul"]


def np(
    noun: str, determiner: Determiner = THE, plural: bool = False, number: int = 0, adjective: str = ""
) -> NounPhrase:
    return NounPhrase(N[noun], determiner, plural, number, A[adjective] if adjective else None)


def inside(noun: str, determiner: Determiner = THE, adjective: str = "") -> tree.Place:
    return tree.Place(INSIDE[noun], np(noun, determiner, adjective=adjective))


def towards(noun: str) -> tree.Place:
    return tree.Place(TOWARDS[noun], np(noun))


def relative(noun: str, clause: Clause, plural: bool = False) -> NounPhrase:
    return NounPhrase(N[noun], THE, plural, relative=clause)


class Golden(NamedTuple):
    what: str
    sentence: Sentence
    en: str
    fr: str
    de: str
    zh: str


def say(what: str, clause: tree.Proposition, en: str, fr: str, de: str, zh: str) -> Golden:
    return Golden(what, Statement(clause), en, fr, de, zh)


# fmt: off
GOLDEN = (
    say("present, third person", Clause(np("man"), V["read"], object=np("book", AN)),
        "The man reads a book.", "L'homme lit un livre.",
        "Der Mann liest ein Buch.", "那个男人读一本书。"),
    say("negated definite object, do-support", Clause(ANNA, V["eat"], negated=True, object=np("apple")),
        "Anna does not eat the apple.", "Anna ne mange pas la pomme.",
        "Anna isst den Apfel nicht.", "安娜不吃那个苹果。"),
    say("negated indefinite object: kein, pas de", Clause(HE, V["drink"], negated=True, object=np("coffee", BARE)),
        "He does not drink coffee.", "Il ne boit pas de café.",
        "Er trinkt keinen Kaffee.", "他不喝咖啡。"),
    say("negation with elision, 没有", Clause(ME, V["have"], negated=True, object=np("car", AN)),
        "I do not have a car.", "Je n'ai pas de voiture.",
        "Ich habe kein Auto.", "我没有汽车。"),
    say("partitive before a vowel", Clause(SHE, V["drink"], object=np("water", BARE)),
        "She drinks water.", "Elle boit de l'eau.",
        "Sie trinkt Wasser.", "她喝水。"),
    say("kinds of things are definite in French", Clause(np("girl"), V["like"], object=np("cheese", BARE)),
        "The girl likes cheese.", "La fille aime le fromage.",
        "Das Mädchen mag Käse.", "那个女孩喜欢奶酪。"),
    say("past with haben and avoir, negated with 没",
        Clause(PAUL, V["buy"], PAST, negated=True, object=np("bread", BARE), time=TIMES["yesterday"]),
        "Paul did not buy bread yesterday.", "Paul n'a pas acheté de pain hier.",
        "Paul hat gestern kein Brot gekauft.", "保罗昨天没买面包。"),
    say("past with sein and être: the participle agrees",
        Clause(np("woman", plural=True), V["go"], PAST, goal=towards("station")),
        "The women went to the station.", "Les femmes sont allées à la gare.",
        "Die Frauen sind zum Bahnhof gegangen.", "那些女人去了火车站。"),
    say("reflexive in French, separable in German", Clause(ANNA, V["rise"], PAST, time=When("clock", 7, 1)),
        "Anna got up at half past seven.", "Anna s'est levée à sept heures et demie.",
        "Anna ist um halb acht aufgestanden.", "安娜七点半起床了。"),
    say("future", Clause(WE, V["visit"], FUTURE, object=np("museum", AN), time=TIMES["tomorrow"]),
        "We will visit a museum tomorrow.", "Nous visiterons un musée demain.",
        "Wir werden morgen ein Museum besuchen.", "我们明天会参观一座博物馆。"),
    say("negated future", Clause(THEY, V["work"], FUTURE, negated=True, time=TIMES["next_week"]),
        "They will not work next week.", "Ils ne travailleront pas la semaine prochaine.",
        "Sie werden nächste Woche nicht arbeiten.", "他们下个星期不会工作。"),
    say("progressive with now", Clause(np("child"), V["sleep"], PROGRESSIVE, place=inside("garden"), time=TIMES["now"]),
        "The child is sleeping in the garden now.", "L'enfant dort dans le jardin maintenant.",
        "Das Kind schläft jetzt im Garten.", "那个孩子现在正在花园里睡觉。"),
    say("progressive without a place", Clause(SHE, V["write"], PROGRESSIVE, object=np("letter", AN), time=TIMES["now"]),
        "She is writing a letter now.", "Elle écrit une lettre maintenant.",
        "Sie schreibt jetzt einen Brief.", "她现在在写一封信。"),
    say("perfect with already", Clause(YOU, V["see"], PERFECT, object=np("castle", THIS)),
        "You have already seen this castle.", "Tu as déjà vu ce château.",
        "Du hast dieses Schloss schon gesehen.", "你已经看见了这座城堡。"),
    say("perfect with never: 过", Clause(ME, V["eat"], PERFECT, negated=True, object=np("fish", BARE)),
        "I have never eaten fish.", "Je n'ai jamais mangé de poisson.",
        "Ich habe noch nie Fisch gegessen.", "我从来没吃过鱼。"),
    say("frequency never",
        Clause(np("teacher"), V["read"], object=np("novel", BARE, True), frequency=FREQUENCIES["never"]),
        "The teacher never reads novels.", "Le professeur ne lit jamais de romans.",
        "Der Lehrer liest nie Romane.", "那位老师从不读小说。"),
    say("adjectives before and after the French noun; mixed German ending",
        Clause(HE, V["paint"], object=np("house", AN, adjective="beautiful")),
        "He paints a beautiful house.", "Il peint une belle maison.",
        "Er malt ein schönes Haus.", "他画一座漂亮的房子。"),
    say("vieil before a vowel; weak German ending",
        Clause(np("man", adjective="old"), V["feed"], object=np("horse", adjective="white")),
        "The old man feeds the white horse.", "Le vieil homme nourrit le cheval blanc.",
        "Der alte Mann füttert das weiße Pferd.", "那个年老的男人喂那匹白色的马。"),
    say("strong German ending after a number; French plural adjective",
        Clause(THEY, V["sell"], PAST, object=np("bicycle", BARE, True, 3, "new")),
        "They sold three new bicycles.", "Ils ont vendu trois nouveaux vélos.",
        "Sie haben drei neue Fahrräder verkauft.", "他们卖了三辆新自行车。"),
    say("de instead of des before an adjective",
        Clause(ME, V["buy"], object=np("chair", BARE, True, adjective="small")),
        "I buy small chairs.", "J'achète de petites chaises.",
        "Ich kaufe kleine Stühle.", "我买小椅子。"),
    say("strong ending of a mass noun", Clause(WE, V["order"], object=np("coffee", BARE, adjective="hot")),
        "We order hot coffee.", "Nous commandons du café chaud.",
        "Wir bestellen heißen Kaffee.", "我们点热的咖啡。"),
    say("weak masculine, plural dative",
        Clause(np("boy", plural=True), V["give"], object=np("ball"), recipient=np("elephant", plural=True)),
        "The boys give the elephants the ball.", "Les garçons donnent le ballon aux éléphants.",
        "Die Jungen geben den Elefanten den Ball.", "那些男孩给那些大象那个球。"),
    say("dative verb with a weak masculine", Clause(ANNA, V["help"], object=np("student")),
        "Anna helps the student.", "Anna aide l'étudiant.",
        "Anna hilft dem Studenten.", "安娜帮助那个大学生。"),
    say("prepositional objects", Clause(PAUL, V["await"], negated=True, object=np("doctor")),
        "Paul does not wait for the doctor.", "Paul n'attend pas le médecin.",
        "Paul wartet nicht auf den Arzt.", "保罗不等那位医生。"),
    say("object clitics agree in the past", Clause(HE, V["see"], PAST, object=SHE),
        "He saw her.", "Il l'a vue.",
        "Er hat sie gesehen.", "他看见了她。"),
    say("indirect clitics", Clause(ME, V["show"], FUTURE, object=np("photo"), recipient=THEY),
        "I will show them the photo.", "Je leur montrerai la photo.",
        "Ich werde ihnen das Foto zeigen.", "我会给他们看那张照片。"),
    say("lui, and dative after a French preposition", Clause(np("singer"), V["answer"], object=HE),
        "The singer answers him.", "Le chanteur lui répond.",
        "Der Sänger antwortet ihm.", "那位歌手回答他。"),
    say("y and dorthin", Clause(SHE, V["go"], PAST, goal=tree.There(), time=TIMES["last_week"]),
        "She went there last week.", "Elle y est allée la semaine dernière.",
        "Sie ist letzte Woche dorthin gegangen.", "她上个星期去了那里。"),
    say("clitic before the infinitive", Clause(np("king"), V["invite"], modal=MODALS["want"], object=YOU),
        "The king wants to invite you.", "Le roi veut t'inviter.",
        "Der König will dich einladen.", "那位国王想邀请你。"),
    say("negated modal", Clause(np("bird"), V["swim"], negated=True, modal=MODALS["can"]),
        "The bird cannot swim.", "L'oiseau ne peut pas nager.",
        "Der Vogel kann nicht schwimmen.", "那只鸟不能游泳。"),
    say("verb second after a fronted time",
        Clause(ANNA, V["open"], PAST, object=np("window"), time=TIMES["yesterday"], fronted=True),
        "Yesterday, Anna opened the window.", "Hier, Anna a ouvert la fenêtre.",
        "Gestern hat Anna das Fenster aufgemacht.", "昨天安娜打开了那扇窗户。"),
    say("separable prefix at the end", Clause(WE, V["close"], object=np("door"), time=TIMES["every_evening"]),
        "We close the door every evening.", "Nous fermons la porte tous les soirs.",
        "Wir machen jeden Abend die Tür zu.", "我们每天晚上关上那扇门。"),
    say("contractions: au, zum, ins, im",
        Clause(np("policeman"), V["go"], goal=towards("cinema"), frequency=FREQUENCIES["often"]),
        "The police officer often goes to the cinema.", "Le policier va souvent au cinéma.",
        "Der Polizist geht oft ins Kino.", "那位警察经常去电影院。"),
    say("elision instead of contraction", Clause(np("doctor"), V["work"], place=inside("hospital")),
        "The doctor works in the hospital.", "Le médecin travaille à l'hôpital.",
        "Der Arzt arbeitet im Krankenhaus.", "那位医生在医院里工作。"),
    say("countries: nach, en, au", Clause(ME, V["fly"], FUTURE, goal=REGIONS["Japan"], time=When("date", 3, 3)),
        "I will fly to Japan on 3 March.", "J'irai en avion au Japon le 3 mars.",
        "Ich werde am 3. März nach Japan fliegen.", "我3月3日会飞到日本。"),
    say("elided origin", Clause(np("tourist", plural=True), V["come"], place=REGIONS["Italy"]),
        "The tourists come from Italy.", "Les touristes viennent d'Italie.",
        "Die Touristen kommen aus Italien.", "那些游客来自意大利。"),
    say("1er", Clause(PAUL, V["travel"], FUTURE, time=When("date", 1, 5)),
        "Paul will travel on 1 May.", "Paul voyagera le 1er mai.",
        "Paul wird am 1. Mai reisen.", "保罗5月1日会旅行。"),
    say("state in the past: imparfait",
        Clause(np("grandmother", MY), V["live"], PAST, place=REGIONS["Vienna"], time=When("year", 1968)),
        "My grandmother lived in Vienna in 1968.", "Ma grand-mère habitait à Vienne en 1968.",
        "Meine Großmutter hat im Jahr 1968 in Wien gewohnt.", "我奶奶1968年住在维也纳。"),
    say("days ago", Clause(np("thief"), V["lose"], PAST, object=np("key", HIS, True), time=When("ago", 2)),
        "The thief lost his keys two days ago.", "Le voleur a perdu ses clés il y a deux jours.",
        "Der Dieb hat vor zwei Tagen seine Schlüssel verloren.", "那个小偷两天前弄丢了他的那些钥匙。"),
    say("possessives bound to the subject", Clause(Both(ANNA, PAUL), V["love"], object=np("dog", THEIR)),
        "Anna and Paul love their dog.", "Anna et Paul adorent leur chien.",
        "Anna und Paul lieben ihren Hund.", "安娜和保罗爱他们的狗。"),
    say("mon before a feminine vowel", Clause(ME, V["forget"], PAST, object=np("plate", MY)),
        "I forgot my plate.", "J'ai oublié mon assiette.",
        "Ich habe meinen Teller vergessen.", "我忘记了我的盘子。"),
    say("every: 都", Clause(np("soldier", Determiner.EVERY), V["learn"], object=np("english", BARE)),
        "Every soldier learns English.", "Chaque soldat apprend l'anglais.",
        "Jeder Soldat lernt Englisch.", "每个士兵都学英语。"),
    say("many, and a bare language", Clause(np("pilot", Determiner.MANY, True), V["speak"], object=np("chinese", BARE)),
        "Many pilots speak Chinese.", "Beaucoup de pilotes parlent chinois.",
        "Viele Piloten sprechen Chinesisch.", "很多飞行员说汉语。"),
    say("manner before a new object, after a known one",
        Clause(np("cat"), V["eat"], object=np("egg", AN), manner=MANNERS["quickly"]),
        "The cat eats an egg quickly.", "Le chat mange un œuf rapidement.",
        "Die Katze isst schnell ein Ei.", "那只猫迅速地吃一个鸡蛋。"),
    say("manner with the perfect",
        Clause(ANNA, V["read"], PERFECT, object=np("letter"), manner=MANNERS["slowly"]),
        "Anna has already read the letter slowly.", "Anna a déjà lu la lettre lentement.",
        "Anna hat den Brief schon langsam gelesen.", "安娜已经慢慢地读了那封信。"),
    say("fixed complements", Clause(SHE, V["chess"], PAST, negated=True),
        "She did not play chess.", "Elle n'a pas joué aux échecs.",
        "Sie hat nicht Schach gespielt.", "她没下象棋。"),
    say("relative clause on the subject",
        Clause(relative("man", Clause(Gap(N["man"], False), V["sell"], object=np("boat", AN))), V["laugh"]),
        "The man who sells a boat laughs.", "L'homme qui vend un bateau rit.",
        "Der Mann, der ein Boot verkauft, lacht.", "卖一条船的那个男人笑。"),
    say("relative clause on the object: participle agreement",
        Clause(ME, V["wear"], object=relative("skirt", Clause(SHE, V["buy"], PAST, object=Gap(N["skirt"], False)))),
        "I wear the skirt that she bought.", "Je porte la jupe qu'elle a achetée.",
        "Ich trage den Rock, den sie gekauft hat.", "我穿她买的那条裙子。"),
    say("relative pronoun in the dative",
        Clause(relative("farmer", Clause(WE, V["thank"], PAST, object=Gap(N["farmer"], False))), V["smile"]),
        "The farmer that we thanked smiles.", "L'agriculteur que nous avons remercié sourit.",
        "Der Bauer, dem wir gedankt haben, lächelt.", "我们感谢的那位农民微笑。"),
    say("weather", Clause(Pronoun.WEATHER, V["rain"], PAST, place=REGIONS["London"], time=TIMES["yesterday"]),
        "It rained in London yesterday.", "Il a plu à Londres hier.",
        "Es hat gestern in London geregnet.", "伦敦昨天下雨了。"),
    say("predicate adjective agrees", Copula(np("orange", plural=True), A["fresh"], negated=True),
        "The oranges are not fresh.", "Les oranges ne sont pas fraîches.",
        "Die Orangen sind nicht frisch.", "那些橙子不新鲜。"),
    say("very; past of to be", Copula(ANNA, A["happy"], PAST, very=True, time=TIMES["yesterday"]),
        "Anna was very happy yesterday.", "Anna était très heureuse hier.",
        "Anna war gestern sehr glücklich.", "安娜昨天非常快乐。"),
    say("a colour", Copula(np("car", MY), A["red"]),
        "My car is red.", "Ma voiture est rouge.",
        "Mein Auto ist rot.", "我的汽车是红色的。"),
    say("profession of a woman", Copula(np("sister", MY), N["doctor"], negated=True),
        "My sister is not a doctor.", "Ma sœur n'est pas médecin.",
        "Meine Schwester ist keine Ärztin.", "我姐姐不是医生。"),
    say("comparison", Copula(np("horse"), Comparison(A["big"], np("dog"))),
        "The horse is bigger than the dog.", "Le cheval est plus grand que le chien.",
        "Das Pferd ist größer als der Hund.", "那匹马比那只狗大。"),
    say("age", Copula(np("girl"), Age(8)),
        "The girl is eight years old.", "La fille a huit ans.",
        "Das Mädchen ist acht Jahre alt.", "那个女孩八岁。"),
    say("place: à côté du", Copula(np("suitcase"), tree.Place(RELATIONS["beside"], np("bed"))),
        "The suitcase is next to the bed.", "La valise est à côté du lit.",
        "Der Koffer ist neben dem Bett.", "那个行李箱在床旁边。"),
    Golden("yes or no", Question(Clause(np("teacher", MY), V["know"], object=np("queen"))),
        "Does my teacher know the queen?", "Est-ce que mon professeur connaît la reine ?",
        "Kennt mein Lehrer die Königin?", "我的老师认识那位王后吗？"),
    Golden("what, with elision", OpenQuestion(Wh.WHAT, Clause(HE, V["order"], PAST)),
        "What did he order?", "Qu'est-ce qu'il a commandé ?",
        "Was hat er bestellt?", "他点了什么？"),
    Golden("who", OpenQuestion(Wh.WHO, Clause(Gap(N["man"], False), V["repair"], FUTURE, object=np("computer"))),
        "Who will repair the computer?", "Qui réparera l'ordinateur ?",
        "Wer wird den Computer reparieren?", "谁会修理那台电脑？"),
    Golden("where", OpenQuestion(Wh.WHERE, Clause(np("aunt", Determiner.YOUR), V["shop"])),
        "Where does your aunt shop?", "Où est-ce que ta tante fait les courses ?",
        "Wo kauft deine Tante ein?", "你阿姨在哪里购物？"),
    Golden("when", OpenQuestion(Wh.WHEN, Clause(THEY, V["paint"], FUTURE, object=np("bridge"))),
        "When will they paint the bridge?", "Quand est-ce qu'ils peindront le pont ?",
        "Wann werden sie die Brücke malen?", "他们什么时候会画那座桥？"),
    Golden("why", OpenQuestion(Wh.WHY, Clause(np("child", plural=True), V["cry"], PAST)),
        "Why did the children cry?", "Pourquoi est-ce que les enfants ont pleuré ?",
        "Warum haben die Kinder geweint?", "那些孩子为什么哭了？"),
    Golden("how many: agreement with what is asked for", HowMany(N["pear"], Clause(SHE, V["eat"], PAST)),
        "How many pears did she eat?", "Combien de poires est-ce qu'elle a mangées ?",
        "Wie viele Birnen hat sie gegessen?", "她吃了几个梨？"),
    Golden("asking the way", WhereIs(np("airport"), polite=True),
        "Excuse me, where is the airport?", "Excusez-moi, où est l'aéroport ?",
        "Entschuldigung, wo ist der Flughafen?", "请问，机场在哪里？"),
    Golden("clause complement", Reported(ME, V["think"], Clause(ANNA, V["call"], FUTURE, object=HE)),
        "I think that Anna will call him.", "Je pense qu'Anna l'appellera.",
        "Ich denke, dass Anna ihn anrufen wird.", "我觉得安娜会给他打电话。"),
    Golden("because: verb final with its prefix",
        Joined("because", Clause(SHE, V["sleep"]), Clause(HE, V["open"], negated=True, object=np("door"))),
        "She sleeps because he does not open the door.", "Elle dort parce qu'il n'ouvre pas la porte.",
        "Sie schläft, weil er die Tür nicht aufmacht.", "她睡觉，因为他不打开那扇门。"),
    Golden("if: s'il, inversion after the condition, 就",
        Joined("if", Clause(HE, V["rest"], FUTURE), Copula(HE, A["tired"])),
        "If he is tired, he will rest.", "S'il est fatigué, il se reposera.",
        "Wenn er müde ist, wird er sich ausruhen.", "如果他很疲惫，他就会休息。"),
    Golden("so: inversion after deshalb", Joined("so", Copula(ANNA, A["sad"]), Clause(SHE, V["cry"])),
        "Anna is sad, so she cries.", "Anna est triste, donc elle pleure.",
        "Anna ist traurig, deshalb weint sie.", "安娜很难过，所以她哭。"),
    Golden("but", Joined("but", Copula(PAUL, A["rich"]), Clause(HE, V["work"])),
        "Paul is rich, but he works.", "Paul est riche, mais il travaille.",
        "Paul ist reich, aber er arbeitet.", "保罗很富有，但是他工作。"),
    Golden("it takes the gender of what it stands for",
        Joined("and", Clause(ANNA, V["buy"], PAST, object=np("pear", AN)),
            Clause(SHE, V["eat"], PAST, object=Echo(N["pear"], False))),
        "Anna bought a pear, and she ate it.", "Anna a acheté une poire et elle l'a mangée.",
        "Anna hat eine Birne gekauft und sie hat sie gegessen.", "安娜买了一个梨，然后她吃了它。"),
    Golden("there is", Existence(np("museum", BARE, True, 2), inside("town", THIS)),
        "There are two museums in this town.", "Il y a deux musées dans cette ville.",
        "In dieser Stadt gibt es zwei Museen.", "这座城市里有两座博物馆。"),
    Golden("command", Order(V["read"], np("newspaper"), negated=False, polite=False),
        "Read the newspaper!", "Lis le journal !",
        "Lies die Zeitung!", "读那份报纸！"),
    Golden("forbidding", Order(V["open"], np("bottle"), negated=True, polite=False),
        "Do not open the bottle!", "N'ouvre pas la bouteille !",
        "Mach die Flasche nicht auf!", "别打开那个瓶子！"),
    Golden("request", Order(V["give"], np("umbrella"), negated=False, polite=True, to_me=True),
        "Please give me the umbrella.", "Donne-moi le parapluie, s'il te plaît.",
        "Gib mir bitte den Regenschirm.", "请给我那把雨伞。"),
    Golden("time of day", tree.ClockIs(3, half=True),
        "It is half past three.", "Il est trois heures et demie.",
        "Es ist halb vier.", "现在三点半。"),
    Golden("weather of the notes", tree.Note(0),
        "Today's weather is good.", "Le temps est beau aujourd'hui.",
        "Das Wetter ist heute schön.", "今天天气很好。"),
    Golden("outcry of the notes", tree.Note(1),
        "HOW DARE YOU!", "Comment oses-tu !",
        "Wie kannst du es wagen!", "你怎么敢！"),
)
# fmt: on


@pytest.mark.parametrize("language", ["en", "fr", "de", "zh"])
@pytest.mark.parametrize("golden", GOLDEN, ids=lambda golden: golden.what)
def test_tree_is_said_as_a_speaker_would(golden: Golden, language: str) -> None:
    assert RENDERERS[language](golden.sentence).text == getattr(golden, language)


def links(sentence: Sentence, source: str, target: str) -> set[tuple[str, str]]:
    first, second = RENDERERS[source](sentence), RENDERERS[target](sentence)
    return {(first.tokens[here], second.tokens[there]) for here, there in align(first.tags, second.tags)}


def test_alignment_follows_verbs_negation_and_contractions() -> None:
    sentence = Statement(Clause(ANNA, V["go"], PAST, negated=True, goal=towards("cinema"), time=TIMES["yesterday"]))
    assert links(sentence, "en", "de") == {
        *(("Anna", "Anna"), ("did", "ist"), ("not", "nicht"), ("go", "gegangen"), ("to", "ins"), ("the", "ins")),
        *(("cinema", "Kino"), ("yesterday", "gestern"), (".", ".")),
    }
    assert links(sentence, "fr", "zh") == {
        *(("Anna", "安娜"), ("n'", "没"), ("pas", "没"), ("allée", "去"), ("cinéma", "电影院"), ("hier", "昨天")),
        (".", "。"),
    }


def test_alignment_joins_a_prefix_to_its_verb_and_kein_to_not() -> None:
    opens = Statement(Clause(HE, V["open"], negated=True, object=np("bottle", BARE, True)))
    assert links(opens, "en", "de") == {
        *(("He", "Er"), ("open", "macht"), ("open", "auf"), ("not", "keine"), ("bottles", "Flaschen"), (".", ".")),
    }


def test_alignment_joins_the_parts_of_a_verb_that_one_word_says_elsewhere() -> None:
    drives = Statement(Clause(PAUL, V["drive"], goal=REGIONS["Rome"]))
    assert links(drives, "fr", "en") == {
        *(("Paul", "Paul"), ("va", "drives"), ("en", "drives"), ("voiture", "drives"), ("à", "to"), ("Rome", "Rome")),
        (".", "."),
    }
