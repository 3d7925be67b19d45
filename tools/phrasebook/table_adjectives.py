# ruff: noqa: E501 - one concept is one line
"""Adjectives, one per line: concept | nouns | English | French | German | Chinese.

English   adjective, comparative where it is not made with "more"
French    masculine, feminine, and a third form before a vowel; a leading caret puts the adjective before the noun
German    stem of the inflected forms after a slash where it differs; comparative
Chinese   adjective; a colour is marked `色`
"""

ADJECTIVES = """
big          | animal thing building outdoor room built fruit furniture vehicle | big bigger | ^grand grande | groß größer | 大
small        | animal thing building outdoor room built fruit furniture vehicle gift | small smaller | ^petit petite | klein kleiner | 小
old          | person animal      | old older         | ^vieux vieille vieil | alt älter        | 年老
aged         | thing building vehicle clothes machine furniture built outdoor | old older | ^vieux vieille vieil | alt älter | 旧
young        | person animal      | young younger     | ^jeune jeune        | jung jünger      | 年轻
new          | thing building vehicle clothes machine furniture built text | new newer | ^nouveau nouvelle nouvel | neu neuer | 新
good         | text film food dish machine | good better | ^bon bonne | gut besser | 好
beautiful    | sight clothes image nature gift building | beautiful | ^beau belle bel | schön schöner | 漂亮
long         | text clothes street  | long longer     | ^long longue        | lang länger      | 长
short        | text clothes         | short shorter   | court courte        | kurz kürzer      | 短
expensive    | thing clothes vehicle machine gift dish | expensive | cher chère | teuer/teur teurer | 贵
cheap        | thing clothes vehicle machine gift dish | cheap cheaper | abordable abordable | billig billiger | 便宜
hot          | dish drink           | hot hotter      | chaud chaude        | heiß heißer      | 热
cold         | dish drink           | cold colder     | froid froide        | kalt kälter      | 冷
fresh        | food fruit           | fresh fresher   | frais fraîche       | frisch frischer  | 新鲜
delicious    | food dish            | delicious       | délicieux délicieuse | lecker leckerer | 好吃
sweet        | fruit dish           | sweet sweeter   | sucré sucrée        | süß süßer        | 甜
interesting  | text image film visitable | interesting     | intéressant intéressante | interessant interessanter | 有趣
boring       | text film            | boring          | ennuyeux ennuyeuse  | langweilig langweiliger | 无聊
famous       | job text film visitable built | famous | célèbre célèbre    | berühmt berühmter | 有名
important    | text job             | important       | important importante | wichtig wichtiger | 重要
difficult    | text                 | difficult       | difficile difficile | schwierig schwieriger | 难
friendly     | person kin           | friendly        | aimable aimable     | freundlich freundlicher | 友好
clever       | person kin animal    | clever          | intelligent intelligente | klug klüger | 聪明
strong       | person kin animal    | strong stronger | fort forte          | stark stärker    | 强壮
tired        | person kin animal    | tired           | fatigué fatiguée    | müde müder       | 疲惫
happy        | person kin           | happy happier   | heureux heureuse    | glücklich glücklicher | 快乐
sad          | person kin           | sad sadder      | triste triste       | traurig trauriger | 难过
rich         | person kin           | rich richer     | riche riche         | reich reicher    | 富有
poor         | person kin           | poor poorer     | pauvre pauvre       | arm ärmer        | 贫穷
quiet        | room building outdoor | quiet quieter  | calme calme         | ruhig ruhiger    | 安静
clean        | room clothes dishes  | clean cleaner   | propre propre       | sauber sauberer  | 干净
dirty        | room clothes dishes vehicle | dirty dirtier | sale sale      | schmutzig schmutziger | 脏
heavy        | suitcase box bag book furniture | heavy heavier   | lourd lourde        | schwer schwerer  | 重
modern       | building machine furniture | modern    | moderne moderne     | modern moderner  | 现代
dangerous    | animal               | dangerous       | dangereux dangereuse | gefährlich gefährlicher | 危险
brave        | person kin           | brave braver    | courageux courageuse | mutig mutiger   | 勇敢
polite       | person kin           | polite          | poli polie          | höflich höflicher | 有礼貌
lazy         | person kin pet       | lazy lazier     | paresseux paresseuse | faul fauler     | 懒惰
diligent     | person kin           | hard-working    | travailleur travailleuse | fleißig fleißiger | 勤奋
curious      | person kin animal    | curious         | curieux curieuse    | neugierig neugieriger | 好奇
nervous      | person kin           | nervous         | nerveux nerveuse    | nervös nervöser  | 紧张
patient      | person kin           | patient         | patient patiente    | geduldig geduldiger | 有耐心
comfortable  | furniture clothes    | comfortable     | confortable confortable | bequem bequemer | 舒适
practical    | machine object       | practical       | pratique pratique   | praktisch praktischer | 实用
high         | built mountain       | high higher     | ^haut haute         | hoch/hoh höher   | 高
red          | clothes vehicle object fruit | red redder | rouge rouge     | rot röter        | 红色
blue         | clothes vehicle object | blue bluer    | bleu bleue          | blau blauer      | 蓝色
green        | clothes vehicle object fruit | green greener | vert verte   | grün grüner      | 绿色
yellow       | clothes vehicle object fruit | yellow yellower | jaune jaune | gelb gelber     | 黄色
white        | clothes vehicle object pet horse | white whiter | blanc blanche | weiß weißer     | 白色
black        | clothes vehicle object pet horse | black blacker | noir noire   | schwarz schwärzer | 黑色
"""
