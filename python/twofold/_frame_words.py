"""Word lists of the supersession rule (frames.py), as text tables: one place to read and to extend."""

from typing import Final

# name | value type | English synonyms | Chinese synonyms. A synonym must mean exactly the same: where two words
# may have two values at once (price and cost, phone and mobile phone) they are two attributes.
ATTRIBUTES: Final = """
ip | ip | ip address, ipv4, ipv4 address, ipv6, ipv6 address | ip, ip地址, ipv4地址, ipv6地址
port | port | port number | 端口, 端口号
version | version | version number | 版本, 版本号
owner | name |  | 所有者, 拥有者, 所有人, 归属人, 主人
manager | name |  | 经理
supervisor | name |  | 主管
lead | name |  | 负责人
head | name |  |
captain | name | team captain | 队长
group leader | name |  | 组长
team lead | name | team leader |
project lead | name |  | 项目负责人
tech lead | name | technical lead | 技术负责人
assignee | name |  | 经办人, 处理人, 受理人
ceo | name | chief executive officer, chief executive | 首席执行官, ceo
president | name |  | 总裁
cto | name | chief technology officer | 首席技术官, cto
status | status | state | 状态
priority | level | severity, priority level | 优先级, 严重程度
phone | phone | phone number, telephone, telephone number, tel | 电话, 电话号码, 联系电话
mobile phone | phone | mobile phone number, mobile number, mobile, cell phone, cell number, cell phone number | 手机号
mobile phone | phone |  | 手机号码, 手机
fax | phone | fax number | 传真, 传真号
email | email | email address, e-mail, e-mail address, mail address | 邮箱, 邮箱地址, 电子邮箱
email | email |  | 电子邮件, 邮件地址, email
location | place | whereabouts, venue | 位置, 会场, 所在地, 所在城市, 地点, 机房
residence | place | city of residence, place of residence, home city | 居住地, 现居地, 居住城市, 常住地
headquarters | place | hq, head office | 总部, 总部所在地
region | place |  | 区域, 地域
address | address | street address | 地址, 住址
deadline | date | due date | 截止日期, 截止时间, 截止日, 到期日, 最后期限, 期限
delivery date | date |  | 交付日期
release date | date |  | 发布日期, 发布时间
launch date | date | go-live date | 上线日期, 上线时间
start date | date |  | 开始日期, 开工日期, 入职日期
end date | date |  | 结束日期
expiry date | date | expiration date, expiry | 有效期至, 过期日期, 到期时间, 失效日期
birthday | date | date of birth, birth date, birthdate | 生日, 出生日期
meeting date | date |  | 会议日期
meeting time | time | time | 会议时间, 开会时间, 时间
start time | time |  | 开始时间
end time | time |  | 结束时间
departure time | time |  | 出发时间, 起飞时间, 发车时间
price | quantity | selling price | 价格, 售价, 价钱, 现价
cost | quantity |  | 成本
list price | quantity |  | 定价
unit price | quantity | price per unit | 单价
fee | quantity |  | 费用
monthly fee | quantity |  | 月费
annual fee | quantity | yearly fee | 年费
rent | quantity |  | 租金, 房租
monthly rent | quantity |  | 月租
budget | quantity |  | 预算
salary | quantity |  | 工资, 薪水, 薪资
monthly salary | quantity |  | 月薪
annual salary | quantity | yearly salary | 年薪
balance | quantity | account balance | 余额
size | quantity | file size | 大小, 文件大小
disk size | quantity |  | 磁盘大小
memory | quantity | ram, memory size | 内存, 内存大小
capacity | quantity |  | 容量
weight | quantity |  | 重量, 体重
height | quantity |  | 高度, 身高
length | quantity |  | 长度
width | quantity |  | 宽度
area | quantity | floor area | 面积, 建筑面积
timeout | quantity | time-out | 超时时间, 超时
ttl | quantity | time to live | ttl, 生存时间
retention | quantity | retention period, retention time | 保留期, 保留时间, 保留天数
rate limit | quantity |  | 限流, 速率限制
speed limit | quantity |  | 限速
quota | quantity |  | 配额, 限额
interest rate | quantity |  | 利率
replica count | quantity | number of replicas, replicas | 副本数
headcount | quantity | number of employees | 员工数, 人数, 员工人数
team size | quantity |  |
population | quantity |  | 人口
colour | colour | color | 颜色
url | url | website, homepage, home page, web address | 网址, 官网, 主页
endpoint | url | base url, api endpoint |
domain | url | domain name | 域名
hostname | ident | host name | 主机名
default branch | ident | main branch | 主分支
room | ident | room number, meeting room | 房间号, 会议室
"""

# Chinese words that narrow an attribute, and the English modifier they stand for.
CHINESE_MODIFIERS: Final = """
公网=public, 外网=external, 内网=internal, 私网=private, 管理=management, ssh=ssh, http=http, https=https
家庭=home, 通讯=mailing,
工作=work, 办公=office, 办公室=office, 私人=personal, 零售=retail, 批发=wholesale, 最低=minimum
最高=maximum, 稳定=stable, 提交=submission, 报名=registration, 申请=application, 付款=payment, 项目=project
产品=product, 技术=technical, 团队=team, 最喜欢的=favorite, 订单=order, 数据库=database
"""

# A definite description without a name may mean another thing each time it is said.
GENERIC: Final = """
account apartment api app application backend book boss branch build building cache car cat class client
cluster company computer contract course customer database department device doctor document dog employee
essay event exam file flight frontend gateway host hotel house invoice item job laptop library machine man
manager meeting model module node office order owner package paper party patient person phone place plan
printer product project queue release repo report repository restaurant room router server service shop site
store student subscription system task teacher team thesis thing ticket train user website woman 东西 书
产品 任务 会议 公司 办公室 医生 合同 员工 商品 商店 团队 学生 客户 应用 房子 房间 手机 报告 数据库 文件 文档
服务 服务器 机器 汽车 活动 用户 电脑 系统 经理 网站 老师 老板 航班 订单 论文 设备 课程 账户 路由器 部门 酒店
项目 餐厅
"""

# traits: words. Two states exclude each other only when they share no trait.
STATUS: Final = """
open progress wait hold: open, 打开, 开放
open wait: new, reopened
open progress run: active, live, 激活, 活跃, 有效
progress run health: running, online, up, operational, available, enabled, 在线, 运行中, 正在运行, 启用
progress run health: 已启用, 可用, 已上线, 上线
run health: healthy, green, normal, ok, good, stable, 正常, 健康, 稳定, 绿色
progress health: on track, 按计划进行
progress: in progress, ongoing, underway, under way, in development, processing, started, 进行中, 处理中
progress: 开发中, 正在进行, 进行
wait: pending, waiting, queued, todo, to do, backlog, scheduled, awaiting approval, 待处理, 待审批, 待审核
wait: 待发货, 待收货, 等待中, 排队中, 待定, 挂起中
progress wait review: under review, in review, in testing, testing, 审核中, 评审中, 测试中
hold block: blocked, stuck, 阻塞, 受阻, 已阻塞
hold block stop: on hold, paused, suspended, frozen, 暂停, 已暂停, 搁置, 已搁置, 冻结
done: done, completed, finished, complete, 完成, 已完成, 结束, 已结束
done closed: closed, resolved, fixed, merged, archived, 关闭, 已关闭, 已解决, 已修复, 已归档, 已合并
run done ship: released, deployed, launched, published, 发布, 已发布, 已部署
ship: shipped, dispatched, in transit, 已发货, 运输中, 配送中
done deliver: delivered, received, 已送达, 已签收
stop fail: stopped, down, offline, inactive, disabled, out of service, 停止, 已停止, 离线, 停用, 已停用
stop fail: 禁用, 已禁用, 已下线, 下线, 宕机, failed, broken
stop fail: error, failing, crashed, 失败, 已失败, 故障, 异常, 错误
fail red: red, critical, 红色
yellow: yellow, amber, at risk, 黄色, 有风险
fail yellow: degraded, 降级
stop maintain: under maintenance, in maintenance, 维护中
stop closed cancel: cancelled, canceled, abandoned, terminated, 取消, 已取消, 终止, 已终止
closed reject: rejected, denied, declined, 已拒绝, 被拒绝
approve: approved, accepted, 已批准, 已通过, 通过, 已审核
progress wait draft: draft, 草稿
paid: paid, 已付款, 已支付
wait unpaid: unpaid, overdue, 待付款, 待支付
refund: refunded, returned, 已退款, 已退货
absent: sold out, out of stock, 售罄, 缺货
stock: in stock, 有货
stop expire: expired, 过期, 已过期, 失效, 已失效
single: single, 单身
married: married, 已婚
divorced: divorced, 离异, 离婚
engaged: engaged, 已订婚
"""

# Unit=factor by dimension. A kilobyte is 1000 bytes here; the comparison knows 1024 as well.
UNITS: Final = """
byte: b=1, byte=1, kb=1000, mb=1000000, gb=1000000000, tb=1e+12, pb=1e+15, kib=1024, mib=1048576
byte: gib=1073741824, tib=1099511627776, gigabyte=1000000000, megabyte=1000000, terabyte=1e+12, kilobyte=1000
second: ms=0.001, millisecond=0.001, 毫秒=0.001, s=1, sec=1, second=1, 秒=1, min=60, minute=60, 分钟=60
second: h=3600, hr=3600, hour=3600, 小时=3600, day=86400
second: 天=86400, d=86400, week=604800, 周=604800, 星期=604800
month: month=1, 个月=1, year=12, 年=12, yr=12
gram: mg=0.001, 毫克=0.001, g=1, gram=1, 克=1, kg=1000, kilogram=1000, kilo=1000, 公斤=1000, 千克=1000
gram: 斤=500, t=1000000, ton=1000000, tonne=1000000, 吨=1000000, lb=453.59237, pound=453.59237, 磅=453.59237
gram: oz=28.349523, ounce=28.349523
metre: mm=0.001, 毫米=0.001, cm=0.01, centimeter=0.01, centimetre=0.01, 厘米=0.01, meter=1, metre=1, m=1
metre: 米=1, km=1000, kilometer=1000, kilometre=1000
metre: 公里=1000, 千米=1000, inch=0.0254, inches=0.0254, in=0.0254
metre: ft=0.3048, feet=0.3048, foot=0.3048, mile=1609.344, mi=1609.344
litre: ml=0.001, 毫升=0.001, l=1, liter=1, litre=1, 升=1
hertz: hz=1, khz=1000, mhz=1000000, ghz=1000000000
bit/s: kbps=1000, mbps=1000000, gbps=1000000000
km/h: kmh=1, mph=1.609344
watt: w=1, watt=1, kw=1000, mw=1000000, 瓦=1, 千瓦=1000
percent: %=1, percent=1
usd: usd=1, $=1, us$=1, dollar=1, 美元=1, cent=0.01
eur: eur=1, €=1, euro=1, 欧元=1
gbp: gbp=1, £=1, 英镑=1
jpy: jpy=1, yen=1, 日元=1
cny: cny=1, rmb=1, ¥=1, 元=1, yuan=1, 人民币=1, 块=1, 块钱=1, 元人民币=1
cad: cad=1
aud: aud=1
inr: inr=1, ₹=1, rupee=1
chf: chf=1
core: core=1, 核=1, vcpu=1
person: people=1, person=1, 人=1, 名=1, employee=1
piece: piece=1, unit=1, item=1, 个=1, 件=1, 台=1, replica=1, 副本=1, 个副本=1
square metre: m2=1, sqm=1, 平方米=1, 平米=1, square meter=1, square metre=1
"""

# The first name of each place is the canonical one. City states are in neither list.
CITIES: Final = """
beijing|peking|北京|北京市; shanghai|上海|上海市; guangzhou|广州|广州市; shenzhen|深圳|深圳市
hangzhou|杭州|杭州市; nanjing|南京|南京市; chengdu|成都|成都市; wuhan|武汉|武汉市; xi'an|xian|西安|西安市
suzhou|苏州|苏州市; tianjin|天津|天津市; chongqing|重庆|重庆市; xiamen|厦门|厦门市; qingdao|青岛|青岛市
changsha|长沙|长沙市; dalian|大连|大连市; zhengzhou|郑州|郑州市; ningbo|宁波|宁波市; hefei|合肥|合肥市
jinan|济南|济南市; shenyang|沈阳|沈阳市; harbin|哈尔滨|哈尔滨市; kunming|昆明|昆明市; fuzhou|福州|福州市
taipei|台北|台北市; tokyo|东京; osaka|大阪; kyoto|京都; seoul|首尔; busan|釜山; bangkok|曼谷; hanoi|河内
jakarta|雅加达; manila|马尼拉; kuala lumpur|吉隆坡; mumbai|bombay|孟买; delhi|new delhi|新德里|德里
bangalore|bengaluru|班加罗尔; chennai|madras; hyderabad; kolkata|calcutta; pune; dubai|迪拜
istanbul|伊斯坦布尔; tel aviv; cairo|开罗; nairobi|内罗毕; lagos; johannesburg; cape town|开普敦; casablanca
accra; london|伦敦; paris|巴黎; berlin|柏林; munich|münchen|慕尼黑; hamburg|汉堡; frankfurt|法兰克福
cologne|köln; stuttgart; leipzig; vienna|wien|维也纳; zurich|zürich|苏黎世; geneva|日内瓦; basel; bern
amsterdam|阿姆斯特丹; rotterdam; brussels|布鲁塞尔; madrid|马德里; barcelona|巴塞罗那; valencia; seville
lisbon|里斯本; porto; rome|roma|罗马; milan|milano|米兰; turin; naples; florence; athens|雅典; prague|布拉格
warsaw|华沙; krakow; budapest|布达佩斯; bucharest; sofia; belgrade; zagreb; kyiv|kiev|基辅; moscow|莫斯科
stockholm|斯德哥尔摩; gothenburg; oslo|奥斯陆; bergen; copenhagen|哥本哈根; helsinki|赫尔辛基; tallinn; riga
vilnius; dublin|都柏林; edinburgh|爱丁堡; glasgow; manchester|曼彻斯特; birmingham; bristol; leeds
liverpool; lyon|里昂; marseille|马赛; toulouse; nice; lille; toronto|多伦多; montreal|montréal|蒙特利尔
vancouver|温哥华; calgary; ottawa|渥太华; new york|nyc|new york city|纽约; los angeles|la|洛杉矶
chicago|芝加哥; houston|休斯顿; phoenix; philadelphia|费城; san antonio; san diego; dallas; austin
san francisco|sf|旧金山; san jose; seattle|西雅图; denver|丹佛; boston|波士顿; portland; las vegas
miami|迈阿密; atlanta|亚特兰大; detroit; minneapolis; nashville; pittsburgh; baltimore; cleveland
mexico city|墨西哥城; sao paulo|são paulo|圣保罗; rio de janeiro; buenos aires; santiago; lima
bogota|bogotá; sydney|悉尼; melbourne|墨尔本; brisbane|布里斯班; perth; auckland|奥克兰; wellington|惠灵顿
"""
COUNTRIES: Final = """
china|中国; japan|日本; south korea|korea|韩国; india|印度; thailand|泰国; vietnam|越南
indonesia|印度尼西亚|印尼; malaysia|马来西亚; philippines|菲律宾; australia|澳大利亚; new zealand|新西兰
germany|德国; france|法国; uk|united kingdom|great britain|英国; ireland|爱尔兰; spain|西班牙
portugal|葡萄牙; italy|意大利; switzerland|瑞士; austria|奥地利; netherlands|the netherlands|荷兰
belgium|比利时; denmark|丹麦; sweden|瑞典; norway|挪威; finland|芬兰; poland|波兰; greece|希腊
turkey|土耳其; russia|俄罗斯; ukraine|乌克兰; egypt|埃及; kenya|肯尼亚; nigeria|尼日利亚; south africa|南非
canada|加拿大; usa|us|u.s.|united states|america|the united states|美国; mexico|墨西哥; brazil|巴西
argentina|阿根廷; chile|智利
"""

SHORT_NAMES: Final = """
robert: bob rob bobby; william: bill will billy; elizabeth: liz beth lizzie eliza; michael: mike mick
thomas: tom tommy; james: jim jimmy; katherine: kate katie kathy; david: dave; alexandra: alex; samuel: sam
anthony: tony; nicholas: nick; benjamin: ben; daniel: dan danny; joseph: joe; matthew: matt; steven: steve
christopher: chris; jennifer: jen jenny; susan: sue; edward: ed eddie; margaret: meg maggie peggy
andrew: andy drew; richard: rick dick rich; charles: charlie chuck; patricia: pat patty; jonathan: jon
timothy: tim; gregory: greg; victoria: vicky; rebecca: becky; deborah: deb; lawrence: larry; frederick: fred
"""
