# ruff: noqa: E501 - one concept is one line
"""Verbs, one per line: concept | traits | subjects | objects | English | French | German | Chinese.

Subjects and objects are classes of nouns. In every language the forms come first, then marks:

    +words    a fixed complement (play +the_piano)
    >word     the preposition of the object; German adds a case (>auf:acc, >:dat)
    <word     Chinese: the coverb that carries the object before the verb
    @         perfect with être or sein
    se        French: reflexive

English   base, and past, participle where irregular; a fourth form is an irregular -ing form
French    infinitive; then the six forms of the present, the participle and the stem of the future where irregular
German    infinitive, with a dot after a separable prefix; then du, er and the participle where irregular
Chinese   the verb

Traits: `like` takes kinds of things (French: definite), `state` has no progressive and no past without a time.
"""

INTRANSITIVE = """
sleep     | -     | person animal | - | sleep slept slept | dormir dors/dors/dort/dormons/dormez/dorment dormi dormir | schlafen schläfst schläft geschlafen | 睡觉
laugh     | -     | person | - | laugh | rire ris/ris/rit/rions/riez/rient ri rir | lachen | 笑
cry       | -     | person | - | cry | pleurer | weinen | 哭
work      | -     | person | - | work | travailler | arbeiten | 工作
dance     | -     | person | - | dance | danser | tanzen | 跳舞
sing      | -     | person | - | sing sang sung | chanter | singen singst singt gesungen | 唱歌
swim      | -     | person animal | - | swim swam swum swimming | nager | schwimmen schwimmst schwimmt geschwommen @ | 游泳
run       | -     | person | - | run ran run running | courir cours/cours/court/courons/courez/courent couru courr | rennen rennst rennt gerannt @ | 跑步
smile     | -     | person | - | smile | sourire souris/souris/sourit/sourions/souriez/sourient souri sourir | lächeln lächelst lächelt gelächelt | 微笑
cook      | -     | person | - | cook | cuisiner | kochen | 做饭
travel    | -     | person | - | travel - - travelling | voyager | reisen reist reist gereist @ | 旅行
rise      | -     | person | - | get got got getting +up | lever lève/lèves/lève/levons/levez/lèvent levé lèver se | auf.stehen stehst steht gestanden @ | 起床
dream     | -     | person | - | dream | rêver | träumen | 做梦
study     | -     | person | - | study | étudier | studieren studierst studiert studiert | 学习
smoke     | -     | person | - | smoke | fumer | rauchen | 抽烟
shop      | -     | person | - | shop - - shopping | faire fais/fais/fait/faisons/faites/font fait fer +les_courses | ein.kaufen | 购物
rest      | -     | person animal | - | rest | reposer se | aus.ruhen sich | 休息
piano     | -     | person | - | play +the_piano | jouer +du_piano | spielen +Klavier | 弹 +钢琴
guitar    | -     | person | - | play +the_guitar | jouer +de_la_guitare | spielen +Gitarre | 弹 +吉他
football  | -     | person | - | play +football | jouer +au_football | spielen +Fußball | 踢 +足球
tennis    | -     | person | - | play +tennis | jouer +au_tennis | spielen +Tennis | 打 +网球
chess     | -     | person | - | play +chess | jouer +aux_échecs | spielen +Schach | 下 +象棋
"""

TRANSITIVE = """
eat       | -     | person | food | eat ate eaten | manger | essen isst isst gegessen | 吃
drink     | -     | person | drink | drink drank drunk | boire bois/bois/boit/buvons/buvez/boivent bu boir | trinken trinkst trinkt getrunken | 喝
order     | -     | person | dish drink | order | commander | bestellen bestellst bestellt bestellt | 点
prepare   | -     | person | dish | prepare | préparer | vor.bereiten bereitest bereitet bereitet | 准备
read      | -     | person | text | read read read | lire lis/lis/lit/lisons/lisez/lisent lu lir | lesen liest liest gelesen | 读
write     | -     | person | written | write wrote written | écrire écris/écris/écrit/écrivons/écrivez/écrivent écrit écrir | schreiben schreibst schreibt geschrieben | 写
buy       | -     | person | food thing clothes vehicle drink | buy bought bought | acheter achète/achètes/achète/achetons/achetez/achètent acheté achèter | kaufen | 买
sell      | -     | person | food thing clothes vehicle drink | sell sold sold | vendre vends/vends/vend/vendons/vendez/vendent vendu vendr | verkaufen verkaufst verkauft verkauft | 卖
see       | -     | person animal | person animal sight | see saw seen | voir vois/vois/voit/voyons/voyez/voient vu verr | sehen siehst sieht gesehen | 看见
seek      | -     | person | object pet clothes person | look >for | chercher | suchen | 寻找
find      | -     | person | object clothes pet | find found found | trouver | finden findest findet gefunden | 找到
lose      | -     | person | object | lose lost lost | perdre perds/perds/perd/perdons/perdez/perdent perdu perdr | verlieren verlierst verliert verloren | 弄丢
forget    | -     | person | object | forget forgot forgotten forgetting | oublier | vergessen vergisst vergisst vergessen | 忘记
clean     | -     | person | clean | clean | nettoyer nettoie/nettoies/nettoie/nettoyons/nettoyez/nettoient nettoyé nettoier | putzen putzt putzt geputzt | 打扫
wash      | -     | person | clothes vehicle dishes | wash | laver | waschen wäschst wäscht gewaschen | 洗
repair    | -     | person | machine | repair | réparer | reparieren reparierst repariert repariert | 修理
open      | -     | person | openable | open | ouvrir ouvre/ouvres/ouvre/ouvrons/ouvrez/ouvrent ouvert ouvrir | auf.machen | 打开
close     | -     | person | openable | close | fermer | zu.machen | 关上
wear      | -     | person | clothes | wear wore worn | porter | tragen trägst trägt getragen | 穿
paint     | -     | person | sight | paint | peindre peins/peins/peint/peignons/peignez/peignent peint peindr | malen | 画
build     | -     | person | building built | build built built | construire construis/construis/construit/construisons/construisez/construisent construit construir | bauen | 建造
watch     | -     | person | film | watch | regarder | an.sehen siehst sieht gesehen | 看
look_at   | -     | person | image | look >at | regarder | an.sehen siehst sieht gesehen | 看
describe  | -     | person | image film sight person | describe | décrire décris/décris/décrit/décrivons/décrivez/décrivent décrit décrir | beschreiben beschreibst beschreibt beschrieben | 描述
photograph | -    | person | sight animal person | photograph | photographier | fotografieren fotografierst fotografiert fotografiert | 拍摄
use       | -     | person | phone computer camera radio lamp knife spoon pencil map umbrella | use | utiliser | benutzen benutzt benutzt benutzt | 使用
take      | -     | person | transport | take took taken | prendre prends/prends/prend/prenons/prenez/prennent pris prendr | nehmen nimmst nimmt genommen | 乘坐
visit     | -     | person | visitable | visit | visiter | besuchen besuchst besucht besucht | 参观
invite    | -     | person | person kin | invite | inviter | ein.laden lädst lädt geladen | 邀请
meet      | -     | person | person kin | meet met met | rencontrer | treffen triffst trifft getroffen | 遇见
call      | -     | person | person kin | call | appeler appelle/appelles/appelle/appelons/appelez/appellent appelé appeller | an.rufen rufst ruft gerufen | 打 <给 +电话
help      | -     | person | person kin | help | aider | helfen hilfst hilft geholfen >:dat | 帮助
thank     | -     | person | person kin | thank | remercier | danken >:dat | 感谢
answer    | -     | person | person kin | answer | répondre réponds/réponds/répond/répondons/répondez/répondent répondu répondr >à | antworten >:dat | 回答
await     | -     | person | person kin | wait >for | attendre attends/attends/attend/attendons/attendez/attendent attendu attendr | warten >auf:acc | 等
talk      | -     | person | person kin | talk >to | parler >avec | sprechen sprichst spricht gesprochen >mit:dat | 交谈 <和
play      | -     | person | person pet | play >with | jouer >avec | spielen >mit:dat | 玩 <和
listen    | -     | person | person kin | listen >to | écouter | zu.hören >:dat | 听 +说话
hear      | -     | person animal | person animal | hear heard heard | entendre entends/entends/entend/entendons/entendez/entendent entendu entendr | hören | 听见
feed      | -     | person | animal | feed fed fed | nourrir | füttern fütterst füttert gefüttert | 喂
chase     | -     | animal | animal | chase | poursuivre poursuis/poursuis/poursuit/poursuivons/poursuivez/poursuivent poursuivi poursuivr | jagen | 追赶
stroke    | -     | person | animal | stroke | caresser | streicheln streichelst streichelt gestreichelt | 抚摸
admire    | state | person | person sight | admire | admirer | bewundern bewunderst bewundert bewundert | 欣赏
know      | state | person | person kin | know knew known | connaître connais/connais/connaît/connaissons/connaissez/connaissent connu connaîtr | kennen kennst kennt gekannt | 认识
love      | state | person | kin pet | love | adorer | lieben | 爱
have      | state have | person | animal thing vehicle | have had had having | avoir ai/as/a/avons/avez/ont eu aur | haben hast hat gehabt | 有
like      | state like | person | food drink animal language | like | aimer | mögen mag/magst/mag/mögen/mögt/mögen gemocht | 喜欢
hate      | state like | person | food drink | hate | détester | hassen hasst hasst gehasst | 讨厌
learn     | like  | person | language | learn | apprendre apprends/apprends/apprend/apprenons/apprenez/apprennent appris apprendr | lernen | 学
teach     | like  | person | language | teach taught taught | enseigner | unterrichten unterrichtest unterrichtet unterrichtet | 教
speak     | state bare | person | language | speak spoke spoken | parler | sprechen sprichst spricht gesprochen | 说
"""

# Subject, recipient (a person) and object.
DITRANSITIVE = """
give      | -     | person | gift | give gave given giving | donner | geben gibst gibt gegeben | 给
show      | -     | person | image film object gift | show showed shown | montrer | zeigen | 看 <给
send      | -     | person | gift text | send sent sent | envoyer envoie/envoies/envoie/envoyons/envoyez/envoient envoyé enverr | schicken | 寄 <给
bring     | -     | person | gift dish object | bring brought brought | apporter | bringen bringst bringt gebracht | 带来 <给
lend      | -     | person | object machine vehicle | lend lent lent | prêter | leihen leihst leiht geliehen | 借给
offer     | -     | person | dish drink | offer | proposer | an.bieten bietest bietet geboten | 提供 <给
"""

# Motion to a goal.
MOTION = """
go        | -     | person animal | - | go went gone | aller vais/vas/va/allons/allez/vont allé ir @ | gehen gehst geht gegangen @ | 去
drive     | -     | person | - | drive drove driven | aller vais/vas/va/allons/allez/vont allé ir @ +en_voiture | fahren fährst fährt gefahren @ | 开车 去
fly       | -     | person | - | fly flew flown | aller vais/vas/va/allons/allez/vont allé ir @ +en_avion | fliegen fliegst fliegt geflogen @ | 飞到
return    | -     | person animal | - | return | retourner @ | zurück.kehren @ | 回到
run_to    | -     | person animal | - | run ran run running | courir cours/cours/court/courons/courez/courent couru courr | rennen rennst rennt gerannt @ | 跑到
"""

# Residence and origin, followed by a place.
LOCAL = """
live      | state residence | person | - | live | habiter | wohnen | 住在
come      | state origin | person | - | come came come | venir viens/viens/vient/venons/venez/viennent venu viendr @ | kommen kommst kommt gekommen @ | 来自
"""

# Followed by a clause.
CLAUSAL = """
think     | state | person | - | think thought thought | penser | denken denkst denkt gedacht | 觉得
know_that | state | person | - | know knew known | savoir sais/sais/sait/savons/savez/savent su saur | wissen weiß/weißt/weiß/wissen/wisst/wissen gewusst | 知道
say       | state | person | - | say said said | dire dis/dis/dit/disons/dites/disent dit dir | sagen | 说
hope      | state | person | - | hope | espérer espère/espères/espère/espérons/espérez/espèrent espéré espérer | hoffen | 希望
believe   | state | person | - | believe | croire crois/crois/croit/croyons/croyez/croient cru croir | glauben | 相信
"""

# Followed by an infinitive; the English and German pasts are simple.
MODALS = """
can       | state | - | - | can could | pouvoir peux/peux/peut/pouvons/pouvez/peuvent pu pourr | können kann/kannst/kann/können/könnt/können konnte | 能
must      | state | - | - | must must | devoir dois/dois/doit/devons/devez/doivent dû devr | müssen muss/musst/muss/müssen/müsst/müssen musste | 必须
want      | state | - | - | want wanted | vouloir veux/veux/veut/voulons/voulez/veulent voulu voudr | wollen will/willst/will/wollen/wollt/wollen wollte | 想
should    | state | - | - | should should | devoir devrais/devrais/devrait/devrions/devriez/devraient dû devr | sollen sollte/solltest/sollte/sollten/solltet/sollten sollte | 应该
"""

# The subject is the weather.
WEATHER = """
rain      | -     | - | - | rain | pleuvoir pleus/pleus/pleut/pleuvons/pleuvez/pleuvent plu pleuvr | regnen regnest regnet geregnet | 下雨
snow      | -     | - | - | snow | neiger | schneien | 下雪
"""
