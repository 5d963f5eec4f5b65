"""Texts of our own, written for these tests."""

ENCYCLOPAEDIC = (
    "Copper is a chemical element with the symbol Cu and atomic number 29. It is a soft, malleable and ductile metal "
    "with very high thermal and electrical conductivity. A freshly exposed surface of pure copper has a pinkish-orange "
    "color. Copper is used as a conductor of heat and electricity, as a building material, and as a constituent of "
    "various metal alloys, such as bronze, which is an alloy of copper and tin, and brass, which is an alloy of copper "
    "and zinc. Copper was one of the first metals to be used by humans, because it occurs in nature in a directly "
    "usable metallic form."
)
NARRATIVE = (
    "Nobody had lived in the lighthouse since the war, but Ada kept the key on a nail behind the kitchen door. On the "
    "first clear day in spring she took the boy across in the small boat. He was nine years old, and afraid of the "
    "water, and he counted the strokes aloud so that he would not have to look at it. When they reached the rocks she "
    "tied the rope to an iron ring and helped him out. Inside it was cold, and the stairs went round and round in the "
    'dark. "Who lived here?" he asked. "Your grandfather," said Ada. She stood at the window for a while. Then she '
    "took something small out of her pocket and laid it on the sill."
)
NUMBERED = (
    "To make tea:\n\n1. Boil some water.\n\n2. Warm the pot.\n\n3. Add the leaves and wait for  4 minutes.\n\n"
    "4. Pour it into  2 cups.\n\n5. Drink it.\n\nx =  12345 + 678\n\n\n\t99 bottles"
)
HOSTILE = (
    "",
    " ",
    "   three before, three after   ",
    "\n\n\t\r\n  mixed\tblanks \u00a0\u2003\u200b",
    "naïve café, Ünïcödé, ﬁ ligature, e\u0301 combining",
    "日本語 のテキスト، نص عربي, עברית, ไทย",
    "👩‍👩‍👧‍👦 🏳️‍🌈 \U0001f9d1\U0001f3fd",
    "<|im_start|>user <|endoftext|> <repo_name>",
    "don't I'LL they've 'S ''",
    "a" * 300 + "!" * 70 + "_-=+" * 20,
    "def f(x):\n    return {**x, 'y': [1, 2.5e-3, 0xFF]}\n",
    "1234567890 3.14159 ١٢٣ Ⅻ ½ x²",
    NUMBERED,
    "\x00\x01\x7f",
)
