# ruff: noqa: E501 - one concept is one line
"""Nouns, one per line: concept | classes | English | French | German | Chinese.

English   singular, or singular/plural where the plural is irregular
French    singular (or singular/plural), gender; a star before a word marks an aspirated h
German    nominative singular, gender (wm: weak masculine), plural
Chinese   word, classifier

An underscore stands for a space inside a word. Nouns of the class `mass` are not counted.
"""

PEOPLE = """
man          | person      | man/men         | homme m             | Mann m Männer              | 男人 个
woman        | person female | woman/women     | femme f             | Frau f Frauen              | 女人 个
child        | person      | child/children  | enfant m            | Kind n Kinder              | 孩子 个
boy          | person      | boy             | garçon m            | Junge wm Jungen            | 男孩 个
girl         | person female | girl            | fille f             | Mädchen n Mädchen          | 女孩 个
friend       | person      | friend          | ami m               | Freund m Freunde           | 朋友 个
neighbour    | person      | neighbour       | voisin m            | Nachbar wm Nachbarn        | 邻居 个
guest        | person      | guest           | invité m            | Gast m Gäste               | 客人 位
colleague    | person      | colleague       | collègue m          | Kollege wm Kollegen        | 同事 位
tourist      | person      | tourist         | touriste m          | Tourist wm Touristen       | 游客 位
customer     | person      | customer        | client m            | Kunde wm Kunden            | 顾客 位
king         | person      | king            | roi m               | König m Könige             | 国王 位
queen        | person female | queen           | reine f             | Königin f Königinnen       | 王后 位
thief        | person      | thief/thieves   | voleur m            | Dieb m Diebe               | 小偷 个
passenger    | person      | passenger       | passager m          | Fahrgast m Fahrgäste       | 乘客 位
mother       | kin female  | mother          | mère f              | Mutter f Mütter            | 母亲 位
father       | kin         | father          | père m              | Vater m Väter              | 父亲 位
brother      | kin         | brother         | frère m             | Bruder m Brüder            | 哥哥 个
sister       | kin female  | sister          | sœur f              | Schwester f Schwestern     | 姐姐 个
son          | kin         | son             | fils/fils m         | Sohn m Söhne               | 儿子 个
daughter     | kin female  | daughter        | fille f             | Tochter f Töchter          | 女儿 个
grandmother  | kin female  | grandmother     | grand-mère/grands-mères f | Großmutter f Großmütter | 奶奶 位
grandfather  | kin         | grandfather     | grand-père/grands-pères m | Großvater m Großväter   | 爷爷 位
uncle        | kin         | uncle           | oncle m             | Onkel m Onkel              | 叔叔 位
aunt         | kin female  | aunt            | tante f             | Tante f Tanten             | 阿姨 位
husband      | kin         | husband         | mari m              | Ehemann m Ehemänner        | 丈夫 个
wife         | kin female  | wife/wives      | épouse f            | Ehefrau f Ehefrauen        | 妻子 个
"""

# The sixth column holds the forms for a woman, used in the predicate: French, German.
PROFESSIONS = """
teacher      | person job  | teacher         | professeur m        | Lehrer m Lehrer            | 老师 位     | professeure Lehrerin
doctor       | person job  | doctor          | médecin m           | Arzt m Ärzte               | 医生 位     | médecin Ärztin
student      | person job  | student         | étudiant m          | Student wm Studenten       | 大学生 个   | étudiante Studentin
cook         | person job  | chef            | cuisinier m         | Koch m Köche               | 厨师 位     | cuisinière Köchin
baker        | person job  | baker           | boulanger m         | Bäcker m Bäcker            | 面包师 位   | boulangère Bäckerin
farmer       | person job  | farmer          | agriculteur m       | Bauer wm Bauern            | 农民 位     | agricultrice Bäuerin
driver       | person job  | driver          | chauffeur m         | Fahrer m Fahrer            | 司机 位     | chauffeuse Fahrerin
policeman    | person job  | police_officer  | policier m          | Polizist wm Polizisten     | 警察 位     | policière Polizistin
engineer     | person job  | engineer        | ingénieur m         | Ingenieur m Ingenieure     | 工程师 位   | ingénieure Ingenieurin
lawyer       | person job  | lawyer          | avocat m            | Anwalt m Anwälte           | 律师 位     | avocate Anwältin
singer       | person job  | singer          | chanteur m          | Sänger m Sänger            | 歌手 位     | chanteuse Sängerin
painter      | person job  | painter         | peintre m           | Maler m Maler              | 画家 位     | peintre Malerin
writer       | person job  | writer          | écrivain m          | Schriftsteller m Schriftsteller | 作家 位 | écrivaine Schriftstellerin
journalist   | person job  | journalist      | journaliste m       | Journalist wm Journalisten | 记者 位     | journaliste Journalistin
gardener     | person job  | gardener        | jardinier m         | Gärtner m Gärtner          | 园丁 位     | jardinière Gärtnerin
waiter       | person job  | waiter          | serveur m           | Kellner m Kellner          | 服务员 位   | serveuse Kellnerin
pilot        | person job  | pilot           | pilote m            | Pilot wm Piloten           | 飞行员 位   | pilote Pilotin
dentist      | person job  | dentist         | dentiste m          | Zahnarzt m Zahnärzte       | 牙医 位     | dentiste Zahnärztin
judge        | person job  | judge           | juge m              | Richter m Richter          | 法官 位     | juge Richterin
musician     | person job  | musician        | musicien m          | Musiker m Musiker          | 音乐家 位   | musicienne Musikerin
scientist    | person job  | scientist       | scientifique m      | Wissenschaftler m Wissenschaftler | 科学家 位 | scientifique Wissenschaftlerin
soldier      | person job  | soldier         | soldat m            | Soldat wm Soldaten         | 士兵 个     | soldate Soldatin
hairdresser  | person job  | hairdresser     | coiffeur m          | Friseur m Friseure         | 理发师 位   | coiffeuse Friseurin
"""

ANIMALS = """
dog          | animal pet  | dog             | chien m             | Hund m Hunde               | 狗 只
cat          | animal pet  | cat             | chat m              | Katze f Katzen             | 猫 只
horse        | animal      | horse           | cheval/chevaux m    | Pferd n Pferde             | 马 匹
cow          | animal      | cow             | vache f             | Kuh f Kühe                 | 牛 头
pig          | animal      | pig             | cochon m            | Schwein n Schweine         | 猪 头
sheep        | animal      | sheep/sheep     | mouton m            | Schaf n Schafe             | 绵羊 只
bird         | animal pet  | bird            | oiseau/oiseaux m    | Vogel m Vögel              | 鸟 只
rabbit       | animal pet  | rabbit          | lapin m             | Kaninchen n Kaninchen      | 兔子 只
mouse        | animal      | mouse/mice      | souris/souris f     | Maus f Mäuse               | 老鼠 只
duck         | animal      | duck            | canard m            | Ente f Enten               | 鸭子 只
bear         | animal      | bear            | ours/ours m         | Bär wm Bären               | 熊 只
lion         | animal      | lion            | lion m              | Löwe wm Löwen              | 狮子 头
monkey       | animal      | monkey          | singe m             | Affe wm Affen              | 猴子 只
elephant     | animal      | elephant        | éléphant m          | Elefant wm Elefanten       | 大象 头
wolf         | animal      | wolf/wolves     | loup m              | Wolf m Wölfe               | 狼 只
fox          | animal      | fox             | renard m            | Fuchs m Füchse             | 狐狸 只
"""

FOOD = """
apple        | food fruit   | apple          | pomme f             | Apfel m Äpfel              | 苹果 个
pear         | food fruit   | pear           | poire f             | Birne f Birnen             | 梨 个
orange       | food fruit   | orange         | orange f            | Orange f Orangen           | 橙子 个
banana       | food fruit   | banana         | banane f            | Banane f Bananen           | 香蕉 根
tomato       | food fruit   | tomato/tomatoes | tomate f           | Tomate f Tomaten           | 西红柿 个
potato       | food         | potato/potatoes | pomme_de_terre/pommes_de_terre f | Kartoffel f Kartoffeln | 土豆 个
egg          | food         | egg            | œuf m               | Ei n Eier                  | 鸡蛋 个
cake         | food dish    | cake           | gâteau/gâteaux m    | Kuchen m Kuchen            | 蛋糕 个
salad        | food dish    | salad          | salade f            | Salat m Salate             | 沙拉 份
soup         | food dish    | soup           | soupe f             | Suppe f Suppen             | 汤 碗
pizza        | food dish    | pizza          | pizza f             | Pizza f Pizzen             | 披萨 个
sandwich     | food dish    | sandwich       | sandwich m          | Sandwich n Sandwiches      | 三明治 个
bread        | food mass    | bread          | pain m              | Brot n -                   | 面包 个
cheese       | food mass    | cheese         | fromage m           | Käse m -                   | 奶酪 块
meat         | food mass    | meat           | viande f            | Fleisch n -                | 肉 块
fish         | food mass    | fish           | poisson m           | Fisch m -                  | 鱼 条
rice         | food mass    | rice           | riz m               | Reis m -                   | 米饭 碗
butter       | food mass    | butter         | beurre m            | Butter f -                 | 黄油 块
chocolate    | food mass    | chocolate      | chocolat m          | Schokolade f -             | 巧克力 块
ice          | food mass    | ice_cream      | glace f             | Eis n -                    | 冰淇淋 个
water        | drink mass   | water          | eau f               | Wasser n -                 | 水 杯
milk         | drink mass   | milk           | lait m              | Milch f -                  | 牛奶 杯
coffee       | drink mass   | coffee         | café m              | Kaffee m -                 | 咖啡 杯
tea          | drink mass   | tea            | thé m               | Tee m -                    | 茶 杯
wine         | drink mass   | wine           | vin m               | Wein m -                   | 葡萄酒 杯
beer         | drink mass   | beer           | bière f             | Bier n -                   | 啤酒 杯
juice        | drink mass   | juice          | jus m               | Saft m -                   | 果汁 杯
"""

THINGS = """
book         | thing text gift object | book      | livre m             | Buch n Bücher              | 书 本
letter       | text written object    | letter    | lettre f            | Brief m Briefe             | 信 封
newspaper    | text thing object      | newspaper | journal/journaux m  | Zeitung f Zeitungen        | 报纸 份
novel        | text written           | novel     | roman m             | Roman m Romane             | 小说 本
poem         | text written           | poem      | poème m             | Gedicht n Gedichte         | 诗 首
report       | text written           | report    | rapport m           | Bericht m Berichte         | 报告 份
picture      | thing image gift object | picture  | tableau/tableaux m  | Bild n Bilder              | 画 幅
photo        | image gift object      | photo     | photo f             | Foto n Fotos               | 照片 张
film         | film                   | film      | film m              | Film m Filme               | 电影 部
map          | thing gift image object | map      | carte f             | Landkarte f Landkarten     | 地图 张
table        | thing furniture        | table     | table f             | Tisch m Tische             | 桌子 张
chair        | thing furniture        | chair     | chaise f            | Stuhl m Stühle             | 椅子 把
bed          | thing furniture        | bed       | lit m               | Bett n Betten              | 床 张
sofa         | thing furniture        | sofa      | canapé m            | Sofa n Sofas               | 沙发 张
cupboard     | thing furniture openable | cupboard | armoire f          | Schrank m Schränke         | 柜子 个
lamp         | thing machine gift     | lamp      | lampe f             | Lampe f Lampen             | 灯 盏
clock        | thing machine gift     | watch/watches | montre f        | Uhr f Uhren                | 手表 块
phone        | thing machine gift object | phone  | téléphone m         | Telefon n Telefone         | 电话 部
computer     | thing machine          | computer  | ordinateur m        | Computer m Computer        | 电脑 台
camera       | thing machine gift object | camera | appareil_photo/appareils_photo m | Kamera f Kameras | 相机 台
radio        | thing machine          | radio     | radio f             | Radio n Radios             | 收音机 台
cup          | thing dishes gift object | cup     | tasse f             | Tasse f Tassen             | 杯子 个
plate        | thing dishes object    | plate     | assiette f          | Teller m Teller            | 盘子 个
bottle       | thing dishes object openable | bottle | bouteille f      | Flasche f Flaschen         | 瓶子 个
knife        | thing dishes object    | knife/knives | couteau/couteaux m | Messer n Messer          | 刀 把
spoon        | thing dishes object    | spoon     | cuillère f          | Löffel m Löffel            | 勺子 把
key          | thing object           | key       | clé f               | Schlüssel m Schlüssel      | 钥匙 把
umbrella     | thing gift object      | umbrella  | parapluie m         | Regenschirm m Regenschirme | 雨伞 把
bag          | thing gift object openable | bag   | sac m               | Tasche f Taschen           | 包 个
suitcase     | thing object openable  | suitcase  | valise f            | Koffer m Koffer            | 行李箱 个
box          | thing object openable  | box/boxes | boîte f             | Schachtel f Schachteln     | 盒子 个
ring         | thing gift object      | ring      | bague f             | Ring m Ringe               | 戒指 枚
toy          | thing gift object      | toy       | jouet m             | Spielzeug n Spielzeuge     | 玩具 个
ball         | thing gift object      | ball      | ballon m            | Ball m Bälle               | 球 个
pencil       | thing gift object      | pencil    | crayon m            | Bleistift m Bleistifte     | 铅笔 支
ticket       | thing gift object      | ticket    | billet m            | Fahrkarte f Fahrkarten     | 车票 张
present      | thing gift object      | present   | cadeau/cadeaux m    | Geschenk n Geschenke       | 礼物 份
window       | openable               | window    | fenêtre f           | Fenster n Fenster          | 窗户 扇
door         | openable               | door      | porte f             | Tür f Türen                | 门 扇
shirt        | clothes gift           | shirt     | chemise f           | Hemd n Hemden              | 衬衫 件
dress        | clothes gift           | dress     | robe f              | Kleid n Kleider            | 连衣裙 条
coat         | clothes gift           | coat      | manteau/manteaux m  | Mantel m Mäntel            | 大衣 件
jacket       | clothes gift           | jacket    | veste f             | Jacke f Jacken             | 夹克 件
hat          | clothes gift           | hat       | chapeau/chapeaux m  | Hut m Hüte                 | 帽子 顶
skirt        | clothes gift           | skirt     | jupe f              | Rock m Röcke               | 裙子 条
pullover     | clothes gift           | jumper    | pull m              | Pullover m Pullover        | 毛衣 件
scarf        | clothes gift           | scarf/scarves | écharpe f       | Schal m Schals             | 围巾 条
car          | vehicle machine        | car       | voiture f           | Auto n Autos               | 汽车 辆
bicycle      | vehicle machine gift   | bicycle   | vélo m              | Fahrrad n Fahrräder        | 自行车 辆
bus          | transport machine      | bus       | bus/bus m           | Bus m Busse                | 公共汽车 辆
train        | transport              | train     | train m             | Zug m Züge                 | 火车 列
taxi         | transport              | taxi      | taxi m              | Taxi n Taxis               | 出租车 辆
boat         | vehicle machine        | boat      | bateau/bateaux m    | Boot n Boote               | 船 条
"""

PLACES = """
house        | building clean sight   | house     | maison f            | Haus n Häuser              | 房子 座
school       | building               | school    | école f             | Schule f Schulen           | 学校 所
university   | building               | university | université f       | Universität f Universitäten | 大学 所
hospital     | building               | hospital  | hôpital/hôpitaux m  | Krankenhaus n Krankenhäuser | 医院 家
station      | building               | station   | gare f              | Bahnhof m Bahnhöfe         | 火车站 个
airport      | building               | airport   | aéroport m          | Flughafen m Flughäfen      | 机场 个
restaurant   | building               | restaurant | restaurant m       | Restaurant n Restaurants   | 餐馆 家
hotel        | building               | hotel     | hôtel m             | Hotel n Hotels             | 酒店 家
museum       | building visitable     | museum    | musée m             | Museum n Museen            | 博物馆 座
theatre      | building               | theatre   | théâtre m           | Theater n Theater          | 剧院 座
cinema       | building               | cinema    | cinéma m            | Kino n Kinos               | 电影院 家
library      | building               | library   | bibliothèque f      | Bibliothek f Bibliotheken  | 图书馆 座
church       | building visitable     | church    | église f            | Kirche f Kirchen           | 教堂 座
supermarket  | building               | supermarket | supermarché m     | Supermarkt m Supermärkte   | 超市 家
bakery       | building               | bakery    | boulangerie f       | Bäckerei f Bäckereien      | 面包店 家
bank         | building               | bank      | banque f            | Bank f Banken              | 银行 家
pharmacy     | building               | pharmacy  | pharmacie f         | Apotheke f Apotheken       | 药店 家
office       | building clean         | office    | bureau/bureaux m    | Büro n Büros               | 办公室 间
factory      | building               | factory   | usine f             | Fabrik f Fabriken          | 工厂 家
castle       | building visitable sight | castle  | château/châteaux m  | Schloss n Schlösser        | 城堡 座
bridge       | built sight            | bridge    | pont m              | Brücke f Brücken           | 桥 座
tower        | built sight visitable  | tower     | tour f              | Turm m Türme               | 塔 座
garden       | outdoor sight          | garden    | jardin m            | Garten m Gärten            | 花园 座
park         | outdoor sight          | park      | parc m              | Park m Parks               | 公园 座
market       | outdoor                | market    | marché m            | Markt m Märkte             | 市场 个
street       | outdoor                | street    | rue f               | Straße f Straßen           | 街道 条
village      | outdoor sight visitable | village  | village m           | Dorf n Dörfer              | 村庄 个
town         | outdoor visitable      | town      | ville f             | Stadt f Städte             | 城市 座
kitchen      | room clean             | kitchen   | cuisine f           | Küche f Küchen             | 厨房 间
room         | room clean             | room      | chambre f           | Zimmer n Zimmer            | 房间 个
bathroom     | room clean             | bathroom  | salle_de_bains/salles_de_bains f | Badezimmer n Badezimmer | 浴室 间
cellar       | room clean             | cellar    | cave f              | Keller m Keller            | 地下室 间
tree         | nature sight           | tree      | arbre m             | Baum m Bäume               | 树 棵
flower       | nature sight gift      | flower    | fleur f             | Blume f Blumen             | 花 朵
mountain     | nature sight           | mountain  | montagne f          | Berg m Berge               | 山 座
river        | nature sight           | river     | rivière f           | Fluss m Flüsse             | 河 条
lake         | nature sight outdoor   | lake      | lac m               | See m Seen                 | 湖 个
forest       | nature outdoor         | forest    | forêt f             | Wald m Wälder              | 森林 片
island       | nature sight visitable | island    | île f               | Insel f Inseln             | 岛 座
beach        | nature outdoor         | beach     | plage f             | Strand m Strände           | 海滩 片
"""

LANGUAGES = """
german       | language mass | German        | allemand m          | Deutsch n -                | 德语 门
french       | language mass | French        | français m          | Französisch n -            | 法语 门
english      | language mass | English       | anglais m           | Englisch n -               | 英语 门
chinese      | language mass | Chinese       | chinois m           | Chinesisch n -             | 汉语 门
spanish      | language mass | Spanish       | espagnol m          | Spanisch n -               | 西班牙语 门
italian      | language mass | Italian       | italien m           | Italienisch n -            | 意大利语 门
japanese     | language mass | Japanese      | japonais m          | Japanisch n -              | 日语 门
russian      | language mass | Russian       | russe m             | Russisch n -               | 俄语 门
"""
