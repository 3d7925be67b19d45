# ruff: noqa: E501 - one concept is one line
"""Names, places with their prepositions, adverbs, times and numbers, one concept per line."""

# concept | gender | English | French | German | Chinese
NAMES = """
Anna     | f | Anna     | Anna     | Anna     | 安娜
Marie    | f | Marie    | Marie    | Marie    | 玛丽
Julia    | f | Julia    | Julia    | Julia    | 朱莉娅
Laura    | f | Laura    | Laura    | Laura    | 劳拉
Sofia    | f | Sofia    | Sofia    | Sofia    | 索菲亚
Emma     | f | Emma     | Emma     | Emma     | 艾玛
Clara    | f | Clara    | Clara    | Clara    | 克拉拉
Paul     | m | Paul     | Paul     | Paul     | 保罗
Peter    | m | Peter    | Peter    | Peter    | 彼得
Thomas   | m | Thomas   | Thomas   | Thomas   | 托马斯
Martin   | m | Martin   | Martin   | Martin   | 马丁
David    | m | David    | David    | David    | 大卫
Daniel   | m | Daniel   | Daniel   | Daniel   | 丹尼尔
Robert   | m | Robert   | Robert   | Robert   | 罗伯特
Simon    | m | Simon    | Simon    | Simon    | 西蒙
Lukas    | m | Lukas    | Lukas    | Lukas    | 卢卡斯
"""

# concept | kind | English | French preposition, preposition of origin, name | German | Chinese
REGIONS = """
Berlin   | city    | Berlin   | à de Berlin       | Berlin   | 柏林
Munich   | city    | Munich   | à de Munich       | München  | 慕尼黑
Hamburg  | city    | Hamburg  | à de Hambourg     | Hamburg  | 汉堡
Vienna   | city    | Vienna   | à de Vienne       | Wien     | 维也纳
Geneva   | city    | Geneva   | à de Genève       | Genf     | 日内瓦
Paris    | city    | Paris    | à de Paris        | Paris    | 巴黎
Lyon     | city    | Lyon     | à de Lyon         | Lyon     | 里昂
London   | city    | London   | à de Londres      | London   | 伦敦
Rome     | city    | Rome     | à de Rome         | Rom      | 罗马
Madrid   | city    | Madrid   | à de Madrid       | Madrid   | 马德里
Moscow   | city    | Moscow   | à de Moscou       | Moskau   | 莫斯科
Beijing  | city    | Beijing  | à de Pékin        | Peking   | 北京
Shanghai | city    | Shanghai | à de Shanghai     | Shanghai | 上海
Tokyo    | city    | Tokyo    | à de Tokyo        | Tokio    | 东京
Germany  | country | Germany  | en de Allemagne   | Deutschland | 德国
France   | country | France   | en de France      | Frankreich | 法国
Italy    | country | Italy    | en de Italie      | Italien  | 意大利
Spain    | country | Spain    | en de Espagne     | Spanien  | 西班牙
China    | country | China    | en de Chine       | China    | 中国
Japan    | country | Japan    | au du Japon       | Japan    | 日本
Canada   | country | Canada   | au du Canada      | Kanada   | 加拿大
Portugal | country | Portugal | au du Portugal    | Portugal | 葡萄牙
"""

# Where the noun is a place: noun | English in, to | French in, to | German in, to | Chinese suffix in, to
PREPOSITIONS = """
school       | at to | à à       | in in     | -
university   | at to | à à       | an an     | -
hospital     | in to | à à       | in in     | 里
station      | at to | à à       | an zu     | -
airport      | at to | à à       | an zu     | -
restaurant   | in to | dans à | in in     | 里
hotel        | in to | dans à | in in     | 里
museum       | in to | dans à | in in     | 里
theatre      | in to | à à       | in in     | 里
cinema       | in to | à à       | in in     | 里
library      | in to | à à       | in in     | 里
church       | in to | dans à | in in     | 里
supermarket  | in to | à à       | in in     | 里
bakery       | in to | à à       | in in     | 里
bank         | in to | à à       | in zu     | 里
pharmacy     | in to | à à       | in in     | 里
office       | in to | à à       | in in     | 里
factory      | in to | à à       | in in     | 里
garden       | in to | dans à | in in     | 里
park         | in to | dans à | in in     | 里
market       | at to | à à       | auf auf   | -
village      | in to | dans à | in in     | 里
town         | in to | dans dans | in in     | 里
kitchen      | in to | dans à | in in     | 里
room         | in to | dans dans | in in     | 里
bathroom     | in to | dans à | in in     | 里
cellar       | in to | dans à    | in in     | 里
house        | in to | dans à | in in     | 里
castle       | in to | dans à | in in     | 里
lake         | in to | dans à    | in an     | 里/边
forest       | in to | dans vers | in in     | 里
island       | on to | sur sur   | auf auf   | 上
beach        | on to | sur à   | an an     | 上
table        | on -  | sur -     | auf -     | 上
chair        | on -  | sur -     | auf -     | 上
bed          | on -  | sur -     | auf -     | 上
sofa         | on -  | sur -     | auf -     | 上
"""

# concept | English | French | German (with the dative) | Chinese suffix
RELATIONS = """
behind       | behind      | derrière   | hinter | 后面
before       | in_front_of | devant     | vor    | 前面
beside       | next_to     | à_côté_de  | neben  | 旁边
under        | under       | sous       | unter  | 下面
"""

# concept | English | French | German | Chinese
FREQUENCIES = """
always       | always      | toujours   | immer  | 总是
often        | often       | souvent    | oft    | 经常
sometimes    | sometimes   | parfois    | manchmal | 有时
rarely       | rarely      | rarement   | selten | 很少
never        | never       | jamais     | nie    | 从不
"""

# concept | verbs | English | French | German | Chinese
MANNERS = """
slowly       | eat drink read write sing dance swim run_to go drive walk | slowly | lentement | langsam | 慢慢地
quickly      | eat drink read write swim run_to drive clean wash repair open close | quickly | rapidement | schnell | 迅速地
carefully    | open close wash repair drive read write clean | carefully | soigneusement | sorgfältig | 仔细地
quietly      | laugh sing cry talk close open | quietly | doucement | leise | 轻轻地
patiently    | await listen answer repair help | patiently | patiemment | geduldig | 耐心地
"""

# concept | tense | English | French | German | Chinese
TIMES = """
yesterday      | past    | yesterday         | hier                | gestern           | 昨天
yesternight    | past    | yesterday evening | hier soir           | gestern Abend     | 昨天 晚上
this_morning   | past    | this morning      | ce matin            | heute Morgen      | 今天 早上
last_week      | past    | last week         | la semaine dernière | letzte Woche      | 上个 星期
last_month     | past    | last month        | le mois dernier     | letzten Monat     | 上个 月
last_year      | past    | last year         | l'année dernière    | letztes Jahr      | 去年
last_summer    | past    | last summer       | l'été dernier       | letzten Sommer    | 去年 夏天
last_winter    | past    | last winter       | l'hiver dernier     | letzten Winter    | 去年 冬天
tomorrow       | future  | tomorrow          | demain              | morgen            | 明天
tonight        | future  | this evening      | ce soir             | heute Abend       | 今天 晚上
next_week      | future  | next week         | la semaine prochaine | nächste Woche    | 下个 星期
next_month     | future  | next month        | le mois prochain    | nächsten Monat    | 下个 月
next_year      | future  | next year         | l'année prochaine   | nächstes Jahr     | 明年
next_summer    | future  | next summer       | l'été prochain      | nächsten Sommer   | 明年 夏天
daily          | present | every day         | tous les jours      | jeden Tag         | 每天
every_morning  | present | every morning     | tous les matins     | jeden Morgen      | 每天 早上
every_evening  | present | every evening     | tous les soirs      | jeden Abend       | 每天 晚上
every_week     | present | every week        | toutes les semaines | jede Woche        | 每个 星期
every_year     | present | every year        | tous les ans        | jedes Jahr        | 每年
in_summer      | present | in summer         | en été              | im Sommer         | 夏天
in_winter      | present | in winter         | en hiver            | im Winter         | 冬天
in_spring      | present | in spring         | au printemps        | im Frühling       | 春天
in_autumn      | present | in autumn         | en automne          | im Herbst         | 秋天
mondays        | present | on Mondays        | le lundi            | montags           | 每个 星期一
saturdays      | present | on Saturdays      | le samedi           | samstags          | 每个 星期六
sundays        | present | on Sundays        | le dimanche         | sonntags          | 每个 星期天
on_monday      | event   | on Monday         | lundi               | am Montag         | 星期一
on_tuesday     | event   | on Tuesday        | mardi               | am Dienstag       | 星期二
on_wednesday   | event   | on Wednesday      | mercredi            | am Mittwoch       | 星期三
on_thursday    | event   | on Thursday       | jeudi               | am Donnerstag     | 星期四
on_friday      | event   | on Friday         | vendredi            | am Freitag        | 星期五
on_saturday    | event   | on Saturday       | samedi              | am Samstag        | 星期六
on_sunday      | event   | on Sunday         | dimanche            | am Sonntag        | 星期天
now            | now     | now               | maintenant          | jetzt             | 现在
"""

# English | French | German; Chinese writes the number
MONTHS = """
January | janvier | Januar
February | février | Februar
March | mars | März
April | avril | April
May | mai | Mai
June | juin | Juni
July | juillet | Juli
August | août | August
September | septembre | September
October | octobre | Oktober
November | novembre | November
December | décembre | Dezember
"""

# The numbers from two to twelve: English | French | German | Chinese before a classifier
NUMBERS = """
two | deux | zwei | 两
three | trois | drei | 三
four | quatre | vier | 四
five | cinq | fünf | 五
six | six | sechs | 六
seven | sept | sieben | 七
eight | huit | acht | 八
nine | neuf | neun | 九
ten | dix | zehn | 十
eleven | onze | elf | 十一
twelve | douze | zwölf | 十二
"""

# Where things usually happen: verbs | places
SCENES = """
sleep dream rest       | room garden hotel house sofa
work                   | office factory hospital school bank hotel restaurant supermarket airport library bakery
laugh cry smile        | kitchen school garden park theatre office cinema
dance sing             | theatre restaurant park garden kitchen church school
swim                   | lake
run                    | park forest garden village
cook                   | kitchen restaurant hotel house
study                  | library university school room
smoke                  | garden park kitchen
shop                   | supermarket town market village
piano guitar           | theatre restaurant church school house room hotel
football tennis chess  | park garden school village
eat drink              | restaurant kitchen garden park hotel office house
order                  | restaurant hotel bakery
prepare                | kitchen restaurant hotel
read                   | library park garden room office kitchen
write                  | library office room garden
buy sell               | market supermarket village town
see hear photograph    | park garden forest village
meet await talk        | station airport restaurant museum park cinema university market theatre
seek find lose forget  | station airport hotel kitchen office cinema church cellar
wash repair            | garden cellar kitchen house
play feed              | garden park room
paint                  | garden park village
"""
