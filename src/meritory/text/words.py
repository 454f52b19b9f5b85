"""Word lists: stop words of queries, and words that may differ between two equal claims."""

from __future__ import annotations

from typing import Final


def words(text: str) -> frozenset[str]:
    """Return the set of words in a list written as text."""
    return frozenset(text.split())


STOP_WORDS: Final = words(
    """
    a about above after again against all am an and any are aren't as at be because been before
    being below between both but by can can't cannot could couldn't did didn't do does doesn't
    doing don don't down during each ever few for from further get gets getting give got had
    hadn't has hasn't have haven't having he he'd he'll he's her here here's hers herself him
    himself his how how's i i'd i'll i'm i've if in into is isn't it it'd it'll it's its itself
    just let let's ll me might more most mustn't my myself no nor not now of off on once only or
    other ought our ours ourselves out over own please re s same shall shan't she she'd she'll
    she's should shouldn't so some such t tell than that that'd that'll that's the their theirs
    them themselves then there there's these they they'd they'll they're they've this those
    through to too under until up us ve very was wasn't we we'd we'll we're we've were weren't
    what what's when when's where where's which while who who's whom why why's will with won't
    would wouldn't y'all you you'd you'll you're you've your yours yourself yourselves
    """
)

# The lists below are for the comparison of two claims (claims/compare.py). A word in none of them
# carries meaning: it must be the same, at the same position, on both sides.

ARTICLES: Final = words("a an the")

FILLERS: Final = words(
    """
    also already basically definitely indeed please really simply still that then truly very
    """
)

HEDGES: Final = words(
    """
    apparently evidently maybe perhaps possibly presumably probably reportedly
    seemingly supposedly
    """
)

# Openers that frame a claim without changing it; longest first within the same start.
_OPENERS: Final = """
    i think that; i think; i believe that; i believe; i guess; it seems that; it seems;
    it appears that; it looks like; note that; note; remember that; please remember that;
    please note that; keep in mind that; for the record; fyi; btw; by the way; as far as i know
"""
OPENERS: Final = tuple(tuple(opener.split()) for opener in _OPENERS.split(";"))

_PHRASES: Final = """
    in order to = to; as well as = and; have to = must; has to = must; is able to = can;
    are able to = can; is called = is named; was called = was named; make sure = ensure;
    makes sure = ensure; because of = due to; at the moment =; right now =; these days =;
    of course =
"""
PHRASES: Final = tuple(
    (tuple(phrase.split()), tuple(short.split()))
    for phrase, _, short in (entry.partition("=") for entry in _PHRASES.split(";"))
)

# Interchangeable words: every word of a group means the first.
_SAME: Final = """
    like likes love loves enjoy enjoys prefer prefers; use uses utilise utilises utilize utilizes;
    used utilised utilized; using utilising utilizing; need needs require requires; needed required;
    want wants; begin begins start starts commence commences; began started commenced;
    buy buys purchase purchases; bought purchased; reside resides live lives; resided lived;
    colour color; colours colors; coloured colored; favourite favorite; favourites favorites;
    behaviour behavior; organise organises organize organizes; organised organized;
    organisation organization; centre center; licence license; grey gray; analyse analyze;
    optimise optimize; initialise initialize; serialise serialize; normalise normalize; child kid;
    children kids; mother mom mum; father dad; movie film; movies films; repository repo;
    repositories repos; configuration config; documentation docs; database db; databases dbs;
    environment env; directory folder dir; directories folders dirs; application app;
    applications apps; information info; photo picture photograph pic;
    photos pictures photographs pics; television tv; phone telephone; large big; quick fast;
    ensure ensures; everyone everybody; someone somebody; is are am; was were; have has; do does;
    percent %; through via; on upon; amongst among; whilst while; until till; ok okay
"""
SAME_AS: Final = {word: group.split()[0] for group in _SAME.split(";") for word in group.split()}

ACRONYMS: Final = words(
    """
    ai api aws cd ci cli cpu css csv db dns eu gcp gpu gui html http https ide json jwt llm ml os
    pc pdf pr ram sdk sql ssh ssl tls tv ui uk url usa ux vm vpn xml yaml
    """
)

NEGATIONS: Final = words(
    "not no never none nobody nothing nowhere neither nor cannot without hardly barely"
)

# Words with which a text says that something changed.
CHANGE_NOW: Final = words("now nowadays currently presently actually henceforth")
CHANGE_VERBS: Final = words(
    """
    become became becomes change changed changes migrate migrated migrates move moved moves switch
    switched switches transition transitioned upgrade upgraded upgrades
    """
)
REPLACE_VERBS: Final = words("rename renamed renames replace replaced replaces swap swapped swaps")

ADDITIVE: Final = words("also too additionally another both besides plus")

# Words that narrow, oppose or condition a claim; text with one of these does not only add to it.
LIMITS: Final = words(
    """
    although but cancelled canceled correction deprecated except excluding false however if
    incorrect instead joke mistake mistaken obsolete only or otherwise outdated rather though unless
    unlike untrue until when whereas while wrong yet
    """
)

PREPOSITIONS: Final = words(
    """
    about above across after against along among around as at before behind below beneath beside
    between beyond by down during for from in inside into near of off on onto out outside over past
    per since than through to toward towards under until up via with within without
    """
)

PRONOUNS: Final = words(
    "he her hers him his i it its me my our she that their them they this us we you your"
)

QUANTIFIERS: Final = words("all any each every few many most much no some several")

# Words that never identify a subject by themselves.
LIGHT_WORDS: Final = (
    ARTICLES
    | PREPOSITIONS
    | PRONOUNS
    | words(
        """
        and are be been being called did do does had has have is live lives must named need needs
        prefer prefers run runs should use uses using user user's want wants was were will work
        works would
        """
    )
)

# Verbs with many objects at once: "now has a dog" says nothing about the cat.
MANY_VALUED: Final = words(
    """
    add added adds attend attends avoid avoids bought buy buys collect collects contain contains
    cook cooks dislike dislikes drink drinks eat eats enjoy enjoys follow follows has hate hates
    have help helps include includes know knows learn learns like likes listen listens love loves
    meet met need needs offer offers own owns play plays practice practices read reads require
    requires see sees sell sells sing sings speak speaks studies study support supports teach
    teaches tried try visit visited visits want wants watch watches write writes
    """
)

# First words of a second clause after "and", in the form of SAME_AS; "rock and roll" has none.
CLAUSE_VERBS: Final = words(
    """
    can could did do gets goes had have he i is it like made makes must need reside she should they
    use want was we will works would
    """
)

# Verbs with which a note about the user may begin without naming the user.
BARE_VERBS: Final = words(
    """
    dislikes enjoys has hates likes lives loves needs owns prefers requires speaks uses wants works
    """
)

_SMALL_NUMBERS: Final = """
    zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen
    sixteen seventeen eighteen nineteen twenty
"""
_TENS: Final = "thirty forty fifty sixty seventy eighty ninety"
NUMBER_WORDS: Final = {
    **{word: str(value) for value, word in enumerate(_SMALL_NUMBERS.split())},
    **{word: str(value * 10) for value, word in enumerate(_TENS.split(), 3)},
}

_UNITS: Final = """
    s sec secs second seconds; ms msec millisecond milliseconds; min mins minute minutes;
    h hr hrs hour hours; day days; week weeks; month months; year years; kb kilobyte kilobytes;
    mb megabyte megabytes; gb gigabyte gigabytes; % percent
"""
UNITS: Final = {unit: group.split()[0] for group in _UNITS.split(";") for unit in group.split()}

# Words that hardly identify a memory: everyday English, and the common words of programming.
COMMON_WORDS: Final = words(
    """
    ability able accept access act actually add added agent agree allow almost alone along already
    also always amazing amount another answer anyone anything anyway app appear apply approach area
    around arrive ask attention available avoid away awesome back bad based become began begin
    behind believe best better big bit break bring bug build built business buy call came care
    carry case catch cause certain change chat check choose claim class clear clearly close code
    come coming command comment commit common company compare compile complete concept concern
    condition consider contain content context continue control cool correct count course cover
    create current currently cut data date day deal debug decide default definitely delete depend
    describe detail develop difference different difficult direction directory discuss done draw
    drive drop early easy edit effect effort either else end enjoy enough ensure enter error
    especially etc even event every everyday everyone everything exactly example excited exist
    expect experience explain export face fact fail fairly fall family far feature feel felt field
    figure file fill final finally find fine first fix focus folder follow force forget form former
    forward found free friend front full fun function future gave general get give given glad go
    goes going gone good great group grow guess guy half hand handle happen happy hard hear heard
    hello help helpful hey hi high hit hold home hope hour however huge idea identify imagine
    import important improve include increase indicate individual info information input inside
    instead interest involve issue item job keep kept key kind knew know known large last late
    later lay lead learn least leave left less let level lie life like line list listen little live
    local log long longer look loop lose lot love low made main maintain make making man manage
    manner many matter may maybe mean measure meet member memory men mention message method middle
    mind minute miss mode module moment month morning mostly move much multiple must name near
    nearly necessary need never new next nice night none note nothing notice number offer often oh
    ok okay old onto open opportunity option order others output outside own page parameter part
    particular pass past path pay people per perhaps period person pick piece place plan plus point
    position possible possibly prefer present pretty prevent previous print probably problem
    process produce program project prompt proper provide public pull purpose push put quality
    question quick quickly quite raise range rate rather reach read ready real realize really
    reason receive recent recently recommend reduce refer regard relate related relationship remain
    remember remove repeat reply report represent request require resource respond response rest
    result return right rise role rule run said sample save saw say search second section see seem
    seen select send sense serious serve service session set several share short show side
    significant similar simple simply since single sit site situation size skip small someone
    something sometimes soon sorry sort sound source space speak special specific spend stand start
    state stay step still stop store strong study stuff style sub subject succeed success sudden
    suggest super support suppose sure sweet system table take taken taking talk task team tend
    term test text thank thing think third though thought throughout throw thus time tip title
    today together told tomorrow tonight took tool top topic total totally touch tough toward track
    tried trouble true try turn two type understand unless update upon upper use used useful user
    using usual usually value various version view visit wait walk want watch way wear week weekend
    welcome well went whatever whether whole wide wish within without woman women wonder wonderful
    word work world worry worth write written wrong yeah year yep yes yesterday yet young
    """
)
