//! A seeded run of the fuzz targets: some ten thousand texts put together from words that matter.

use conf_syntax::fuzzing;

const WORDS: &[&str] = &[
    "a",
    " b",
    "server",
    " {",
    "}",
    ";",
    " ",
    "\n",
    "\t",
    "\r\n",
    "'",
    "\"",
    "\\",
    "\\n",
    "\\\"",
    "\\'",
    "\\;",
    "#",
    "# c\n",
    "$",
    "${",
    "${v}",
    "$v",
    "(",
    ")",
    "if ($a = b)",
    " 'q q'",
    " \"d d\"",
    "\u{e9}",
    "\0",
    "include x;",
    "a b c;",
    "a { b; }",
    "a \"\";",
    "location ~ \\.x$ {",
    "a '\\\\';",
    "= ",
    "~*",
    "http {\n",
    "}\n",
];

#[test]
fn mutated_texts_have_valid_tokens() {
    run(fuzzing::tokens, 20_000);
}

#[test]
fn mutated_texts_have_valid_trees() {
    run(fuzzing::tree, 20_000);
}

#[test]
fn long_words_and_deep_blocks() {
    for text in [
        "x".repeat(5000),
        "a {".repeat(200),
        format!("a '{};", "y".repeat(9000)),
        "\\\\".repeat(1500) + ";",
        "}".repeat(50),
        "\u{feff}a;".into(),
    ] {
        fuzzing::tokens(text.as_bytes());
        fuzzing::tree(text.as_bytes());
    }
}

fn run(target: fn(&[u8]), rounds: usize) {
    let mut state = testkit::Random::new(0x9e37_79b9_7f4a_7c15);
    let mut next = move |below: usize| state.below(below);
    target(b"");
    for round in 0..rounds {
        let mut input = Vec::new();
        for _ in 0..next(16) {
            input.extend_from_slice(WORDS[next(WORDS.len())].as_bytes());
        }
        if round % 4 == 1 && !input.is_empty() {
            let at = next(input.len());
            input[at] = next(256) as u8;
        }
        let result = std::panic::catch_unwind(|| target(&input));
        assert!(result.is_ok(), "round {round}: {}", input.escape_ascii());
    }
}
