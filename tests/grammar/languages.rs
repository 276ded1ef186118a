//! Grammars of the kinds that llama.cpp publishes as examples, of our own wording, with texts that fit and texts that do not:
//! recursion, ambiguity between lexemes, blanks by rule, classes of thousands of characters.

pub struct Language {
    pub name: &'static str,
    pub grammar: &'static str,
    pub fit: &'static [&'static str],
    pub not: &'static [&'static str],
}

pub const LANGUAGES: &[Language] = &[
    Language {
        name: "json",
        grammar: include_str!("languages/json.gbnf"),
        fit: &[
            "{}",
            "{ \"a\": [1, -0.5e+3, true, null, {\"b\": \"\\u00e9\\n\"}] }",
            "{\n\t\"\u{E9}\u{1F600}\": \"\"\n}",
            "{\"a\":0}",
        ],
        not: &[
            "",
            "[]",
            "1",
            "{\"a\":01}",
            "{\"a\"}",
            "{a:1}",
            "{\"a\":1,}",
            "{\"a\":\"\\x\"}",
            "{\"a\":\"\n\"}",
            "{}  {}",
        ],
    },
    Language {
        name: "json-array",
        grammar: include_str!("languages/json-array.gbnf"),
        fit: &["[\n  1\n]", "[\n  {\"a\": [ ]},\n  \"x\",\n  -1.5E2\n]", "[\n  {},\n  null\n]"],
        not: &["[]", "[\n]", "[1]", "[\n  1,\n]", "[\n  1\n  2\n]", "{\"a\":1}"],
    },
    Language {
        name: "arithmetic",
        grammar: include_str!("languages/arithmetic.gbnf"),
        fit: &["a=1\n", "1 + 2*(b_1 - 33) = c\n", "((x))= y\nx = 2 \n"],
        not: &["", "a=1", "a==1\n", "1+=2\n", "a = 1 + 2\n", "(a = 1\n", "A=1\n"],
    },
    Language {
        name: "list",
        grammar: include_str!("languages/list.gbnf"),
        fit: &["- one\n", "- one\n- \u{E9}, - two\n", "-  \n"],
        not: &["", "- \n", "- one", "* one\n", "- one\n\n", "- a\u{2028}b\n"],
    },
    Language {
        name: "chess",
        grammar: include_str!("languages/chess.gbnf"),
        fit: &["1. e4 e5\n2. Nf3 Nc6\n", "1. exd5 Qxd5+\n2. O-O O-O-O\n99. a8=Q# Rae1\n"],
        not: &[
            "1. e4 e5\n",
            "2. e4 e5\n3. d4 d5\n",
            "1. e9 e5\n2. d4 d5\n",
            "1. e4 e5\n02. d4 d5\n",
            "1. O-O-O-O e5\n2. d4 d5\n",
        ],
    },
    Language {
        name: "statements",
        grammar: include_str!("languages/statements.gbnf"),
        fit: &[
            "",
            "int f(){}",
            "int f(float x) {\n  x = -x*(1+g(x, 2));\n  // more\n  if(x<=1) { return x; } else { h(); }\n  return 0;\n}\nchar g(){ }",
            "int i(){int x=intf;while(a==b){}}",
        ],
        not: &["int f()", "f(){}", "int f(){x=1}", "int f(){return;}", "int f(){if(x){}}", "int 1f(){}"],
    },
    Language {
        name: "english",
        grammar: include_str!("languages/english.gbnf"),
        fit: &["Hello, world!", "a", "(1 - 1)? No:\n$2;\t[x]_`{y}`"],
        not: &["", " a", "a ", "a  b", "na\u{EF}ve", "a#b", "a@b", "a\r\nb"],
    },
    Language {
        name: "japanese",
        grammar: include_str!("languages/japanese.gbnf"),
        fit: &[
            "\u{3053}\u{3093}\u{306B}\u{3061}\u{306F}\u{3002}",
            "\u{65E5}\u{672C}\u{8A9E} \u{30C6}\u{30B9}\u{30C8}\u{FF01}",
        ],
        not: &["", "abc", "\u{3053} ", "\u{3053}\u{3000}\u{3093}", "\u{4DFF}", "\u{A000}"],
    },
];
