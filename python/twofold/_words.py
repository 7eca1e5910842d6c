"""Word lists and character classes of the text rules: data only, no logic.

Changing anything here changes stored lexemes or entities: raise `text._VERSION` with it.
"""

from typing import Final

# Function words of English. Negations stay in: "not" never decides what a text is about.
STOP_WORDS: Final = frozenset(
    """
    a about above after again against all also am an and any are as at be because been before
    being below between both but by can could did do does doing done down during each either else
    ever every few for from further get gets getting got had has have having he her here hers
    herself him himself his how however i if in into is it its itself just let like me might
    mine more most much must my myself neither no nor not of off on once only onto or other our
    ours ourselves out over own per quite rather really same shall she should since so some such
    than that the their theirs them themselves then there these they this those though through
    thus to too toward towards under until unto up upon us very via was we were what whatever when
    whenever where wherever whether which whichever while who whoever whom whose why will with
    within without would yet you your yours yourself yourselves
    ain't aren't can't cannot couldn't didn't doesn't don't hadn't hasn't haven't isn't mightn't
    mustn't needn't shan't shouldn't wasn't weren't won't wouldn't
    gonna gotta wanna
    """.split()
)

# Words that ask rather than describe; dropped from queries only.
REQUEST_WORDS: Final = frozenset("please tell remind recall show".split())

# Irregular forms that the stemmer cannot know, each to its base; those that are also another word
# ("left", "saw", "found", "lives") are left out.
IRREGULAR: Final = {
    form: base
    for base, *forms in (
        line.split()
        for line in """
        arise arose arisen|awake awoke awoken|beat beaten|become became|begin began begun|bend bent
        bite bitten|bleed bled|blow blew blown|break broke broken|breed bred|bring brought|build built
        burn burnt|buy bought|catch caught|child children|choose chose chosen|cling clung|come came
        creep crept|criterion criteria|crisis crises|deal dealt|dig dug|draw drew drawn|dream dreamt
        drink drank drunk|drive drove driven|eat ate eaten|fall fell fallen|feed fed|fight fought|flee fled
        fly flew flown|foot feet|forbid forbade forbidden|forget forgot forgotten|forgive forgave forgiven
        freeze froze frozen|give gave given|go goes went gone|goose geese|grow grew grown|half halves
        hang hung|hear heard|hide hid hidden|hold held|index indices|keep kept|kneel knelt|knife knives
        know knew known|lay laid|lead led|lean leant|leap leapt|learn learnt|lend lent|lose lost|make made
        man men|matrix matrices|mean meant|meet met|mistake mistook mistaken|mouse mice
        overcome overcame|pay paid|phenomenon phenomena|prove proven|rebuild rebuilt|ride rode ridden
        ring rang rung|rise risen|run ran|say said|see seen|seek sought|sell sold|send sent|sew sewn
        shake shook shaken|shelf shelves|shine shone|shoot shot|show shown|shrink shrank shrunk|sing sang sung
        sink sank sunk|sit sat|sleep slept|slide slid|speak spoken|spend spent|spin spun|spring sprang sprung
        stand stood|steal stole stolen|stick stuck|sting stung|strike struck stricken|swear swore sworn
        sweep swept|swim swam swum|swing swung|take took taken|teach taught|tear tore torn|tell told
        thief thieves|think thought|throw threw thrown|tooth teeth|understand understood
        undertake undertook undertaken|vertex vertices|wake woke woken|wear wore worn|weave wove woven
        weep wept|wife wives|win won|withdraw withdrew withdrawn|wolf wolves|woman women|write wrote written
        """.replace("\n", "|").split("|")
        if line.strip()
    )
    for form in forms
}

# Chinese function characters: a character of this set is no term of its own, and a pair of two is none.
STOP_HAN: Final = frozenset(
    "的了是在和与及或也都就还而但把被让给对从向到於于以之其这那哪些个么什吗呢吧啊呀嘛哦着過过得地很不没有"
    "我你您他她它们們為为谁請请問问說说會会能可要将因此所如若则则並并等嗎這個麼沒對從給讓還與"
)

# Words that often open an English sentence with a capital letter and name nothing.
OPENERS: Final = frozenset(
    """
    absolutely according actually additionally after afterwards agreed ah aha alas alright also
    although altogether always amazing analyze and another anyone anything anyway apparently apply
    are arrange ask assume at author awesome aw aww based basically beautiful because before believe
    besides best better beyond bring build but buy bye call calm care certainly change check cheers
    choose clean clear clearly click close come compare complete configure congrats congratulations
    consider considering continue convert cool copy correct could count create currently damn date
    day dear decide decided decision definitely delete depending deploy describe despite details did
    different do document does don't done double down draft due during each early easy edit eight
    either eleven else email empty enable end english enjoy enough ensure especially essentially
    even eventually every everybody everyone everything everywhere evidently exactly example excellent
    except excited exciting explain extra extremely fact fair family fantastic far fast feel few fifty
    file finally find fine first five fix follow following food for forget fortunately forty found
    four frankly free friends from full fun further furthermore game generally generate get give given
    glad go good goodbye gosh got gotcha great guess guys haha half happy hard has have having he
    heck hello help hence here hey hi high hm hmm hold home honestly hooray hope hopefully how however
    huge hurray i idea ideally if imagine implement import important in include incredible indeed
    info initially input inside install instead interesting is it item job join just keep key kids
    kind know kudos last lastly lately later latest learn least leave less let life likewise line list
    little live local long look looking looks lots love lovely low luckily main maintain make makes many
    maybe me mean meanwhile meet memo mental merge message might mine miss more moreover most mostly
    mother move much music must my name naturally need needless never nevertheless new news next nice
    nine no nobody none nonetheless nope normally not note notes nothing now number obviously of off
    often oh ok okay old omg on once one only oops open or order original originally other others
    otherwise ouch our out output over overall own parents part past people perfect perhaps personally
    pick plan planning play please plenty plus point possibly practice presumably pretty previously
    prior probably problem project promise proud provide put question quick quickly quite rarely
    rather read ready really recall recently regarding regardless remember remind remove rename
    replace report request require reset respond result return review right roughly run sadly same
    save saw say second see seems send serious seriously set seven several shall she should show
    similarly simple simply since six sleep slow small so some somebody someone something sometimes
    somewhere soon sorry sound sounds specifically start status step still stop store strange
    strong stuff subject such summary super suppose supposedly sure surely surprisingly switch take
    talk talking task tell ten terrific test text thank thankfully thanks that the their then there
    therefore these they thing things think third this those though thought thousand three thrilled
    through throughout thus time title to today together tomorrow tonight too top total totally
    trip true truly trust try trying turn twelve twenty two typically ugh ultimately um under
    understand understood unfortunately unless unlike until up update upgrade use used user using
    usually value verify very via view visit wait wake walk want warning was watch way we weather
    weird welcome well were what whatever when whenever where whereas wherever whether which while
    who whoever whose why wide will with within without woah wonder wonderful woo word work works
    worry would wow write wrong yay yeah year years yep yes yesterday yet you your yup zero
    agree attend adjust add align allow analyse avoid adding begin both break by calculate can catch
    conclusion conduct contact content context define deliver demo design determine develop discuss
    display drive earlier education encourage engage establish evaluate expand explore feature
    features feedback finish focus format gather goal goals handle health highlight identify
    improve increase inform introduction invest issue lead leverage limit link load log manage
    measure method monitor notice offer optimize optionally organize output page participate perform
    practical prepare present prevent print prioritize process protect purpose rate reach recommend
    record reduce reflect refer related remain resources response retry role sample scenario schedule
    scope search secure seek select service session share solution source specify split stay strategy
    study submit suggest suggested support team template tip tips track traditional train transfer
    translate type types understanding update updated usage utilize validate visualize volunteer
    almost anytime anyways appreciate awww bet bummer challenges cherish crazy cute explanation feels going
    gotcha ha hah hang highly impressive lucky mm mmm mixed nah oof regularly reminds setbacks sincerely started
    steps took tough whoa wish woohoo yea yum incorporate emphasize refine finalize allocate customize dedicate
    double-check mention proofread revise summarize tailor integrate connect spend aim needed tons
    """.split()
)

# Capital words that are times, titles or answers, never the name of something.
NOT_NAMES: Final = frozenset(
    """
    january february march april may june july august september october november december jan feb
    mar apr jun jul aug sep sept oct nov dec monday tuesday wednesday thursday friday saturday sunday
    mon tue tues wed thu thur thurs fri sat sun am pm a.m p.m ok okay tv id ids ps fyi btw omg lol
    asap tbd todo faq eta rsvp bc ad aka etc vs ip url uri mr mrs ms dr prof sir
    i mom dad mum
    """.split()
)

# Lower-case words that may stand inside a capitalised name ("University of Oslo", "Ludwig van Beethoven").
NAME_LINKS: Final = frozenset("of de da di del der den des du la le van von zu bin al el y".split())

# Nouns that a letter or a number turns into a name ("server A", "node 3").
NUMBERED_NOUNS: Final = (
    "agent batch branch building bucket building camera channel client cluster container customer "
    "database db dc device disk door floor gate group host instance lab link machine node "
    "partition phase plan plant pod port printer project queue rack region release replica robot room "
    "router sector sensor server service shard site sprint station switch team tenant "
    "terminal tier unit user vm volume warehouse worker zone"
).split()

# The same in Chinese ("服务器A", "方案B"), longest first so that the longest noun wins.
NUMBERED_HAN: Final = sorted(
    "服务器 数据库 路由器 交换机 传感器 机器人 打印机 工作站 控制器 节点 主机 集群 项目 方案 计划 系统 模块 "
    "团队 小组 用户 客户 机器 实例 阶段 任务 服务 工厂 仓库 房间 设备 型号 区域 分区 副本 队列 容器 代理 "
    "公司 部门 产品 楼层 大楼 车间 产线 站点 机房 机柜 分支 组件 网关 端点 版本 组 楼 区 室".split(),
    key=lambda noun: (-len(noun), noun),
)

# File name endings that make "name.ending" a file rather than a host or an abbreviation.
FILE_ENDINGS: Final = (
    "bash bat bin bmp c cc cfg cmake conf cpp cs css csv cxx dart db dll doc docx env exe gif gitignore "
    "go gz h hpp htm html ini ipynb iso jar java jpeg jpg js json jsonl jsx kt lock log lua md mjs mp3 "
    "mp4 onnx parquet pdf php pkl pl png ppt pptx proto ps1 py pyi pyx r rb rs rst rtf scala sh so sql "
    "sqlite svg swift tar tex tf toml ts tsv tsx txt vue wav webp whl xls xlsx xml yaml yml zip zsh"
).split()

# Endings that make "name.ending" a host.
HOST_ENDINGS: Final = (
    "ai app at au be biz blog br ca ch cloud cn co com cz de dev edu es eu fi fr gov hk hu ie in info "
    "int internal io it jp kr lan local localdomain me mil mx net nl no nz org pl pt ru se sg sh site "
    "store tech tv tw uk us xyz za"
).split()

# Character classes, written for use inside [...] of a regular expression.
HAN: Final = "\u3005\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
KANA: Final = "\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff"
HANGUL: Final = "\u1100-\u11ff\u3131-\u318e\ua960-\ua97c\uac00-\ud7a3\ud7b0-\ud7fb"
# Scripts written without spaces and without a character for each syllable: Thai, Lao, Myanmar, Khmer.
UNSPACED: Final = "\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0ece\u1000-\u103f\u1050-\u109f\u1780-\u17d3"
# Combining marks that are part of a word but not of `\w`; whole blocks where letters and marks alternate.
MARKS: Final = (
    "\u0300-\u036f\u0483-\u0487\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a"
    "\u064b-\u065f\u0670\u06d6-\u06dc\u06df-\u06e4\u06e7\u06e8\u06ea-\u06ed\u0711\u0730-\u074a"
    "\u07a6-\u07b0\u07eb-\u07f3\u0816-\u082d\u0859-\u085b\u08d3-\u08e1\u08e3-\u0963\u0966-\u096f"
    "\u0971-\u0df3\u0f18\u0f19\u0f35\u0f37\u0f39\u0f3e-\u0f84\u0f86-\u0fbc\u135d-\u135f\u1712-\u1734"
    "\u180b-\u180d\u1920-\u193b\u1a17-\u1a7f\u1ab0-\u1ace\u1b00-\u1b44\u1b80-\u1baa\u1be6-\u1bf3"
    "\u1c24-\u1c37\u1cd0-\u1cf9\u1dc0-\u1dff\u20d0-\u20f0\u302a-\u302f\ua66f-\ua67d\ua69e\ua69f"
    "\ua6f0\ua6f1\ua802-\ua827\ua880-\ua8c5\ua8e0-\ua8f1\ua926-\ua953\ua980-\ua9c0\uaa29-\uaa36"
    "\uaaeb-\uaaf6\uabe3-\uabed\ufe20-\ufe2f"
)
# Characters that format but say nothing: soft hyphen, zero width, bidi, tatweel, variation selectors.
INVISIBLE: Final = "".join(
    chr(first + i)
    for first, count in [
        (0xAD, 1),
        (0x61C, 1),
        (0x640, 1),
        (0x200B, 5),
        (0x202A, 5),
        (0x2060, 16),
        (0xFE00, 16),
        (0xFEFF, 1),
    ]
    for i in range(count)
)
