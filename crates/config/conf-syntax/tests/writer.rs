//! Properties of the writer: reading a written tree gives its words, whatever bytes they have.

use conf_syntax::writer::{
    Argument, NewDirective, TemplatePart, WriteError, WriteNode, dollar_definition, first_difference, write_tree,
};
use conf_syntax::{FileId, WORD_BYTES_MAX, first_error, parse_file};
use proptest::prelude::*;

fn argument() -> impl Strategy<Value = Argument> {
    // Bytes that have a meaning in the language are frequent.
    let byte = prop_oneof![any::<u8>(), prop::sample::select(b" \t\r\n;{}\"'\\$#~=()".to_vec())];
    let bytes = prop::collection::vec(byte, 0..24);
    let part =
        prop_oneof![bytes.clone().prop_map(TemplatePart::Text), "[a-z_0-9]{1,6}".prop_map(TemplatePart::Variable)];
    prop_oneof![
        bytes.clone().prop_map(Argument::Plain),
        bytes.prop_map(Argument::literal),
        prop::collection::vec(part, 0..4).prop_map(Argument::Template),
    ]
}

fn node() -> impl Strategy<Value = WriteNode> {
    let line = (argument(), prop::collection::vec(argument(), 0..4))
        .prop_map(|(name, args)| NewDirective { name, args, block: None })
        .boxed();
    let leaf = prop_oneof![
        4 => line.clone().prop_map(WriteNode::Directive),
        1 => ".*".prop_map(WriteNode::Comment),
        1 => "[\\n\\r;{}# a-z\u{85}\u{2028}]*".prop_map(WriteNode::Comment),
        1 => Just(WriteNode::Blank),
    ];
    leaf.prop_recursive(4, 24, 5, move |inner| {
        (line.clone(), prop::collection::vec(inner, 0..5))
            .prop_map(|(directive, lines)| WriteNode::Directive(directive.block(lines)))
    })
}

proptest! {
    #[test]
    fn reading_a_written_tree_gives_its_words(nodes in prop::collection::vec(node(), 0..6)) {
        let text = write_tree(&nodes).expect("short words");
        let read = parse_file(FileId(0), &text);
        prop_assert!(first_error(&read).is_none(), "{}", text.escape_ascii());
        prop_assert_eq!(first_difference(&nodes, &read), None);
    }

    /// Data in an evaluated argument contains no reference to a variable other than `dollar`, and means its bytes.
    #[test]
    fn a_literal_evaluates_to_its_bytes(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        let written = Argument::literal(&bytes).bytes();
        let text = String::from_utf8_lossy(&written).replace("${dollar}", "");
        prop_assert!(!text.contains('$'));
        let mut evaluated = Vec::new();
        let mut rest = written.as_slice();
        while let Some((first, behind)) = rest.split_first() {
            match rest.strip_prefix(b"${dollar}") {
                Some(behind) => { evaluated.push(b'$'); rest = behind; }
                None => { evaluated.push(*first); rest = behind; }
            }
        }
        prop_assert_eq!(evaluated, bytes);
    }
}

#[test]
fn words_of_the_language_stay_bare_and_data_is_quoted() {
    let location = NewDirective::new("location").arg("=").arg(Argument::plain("/a b;{}\"\\")).block(vec![
        WriteNode::Comment("HTTPRoute shop/api\n}".into()),
        NewDirective::new("return").arg("404").into(),
        NewDirective::new("set").arg("$a").arg(Argument::literal("$5")).into(),
        NewDirective::new("proxy_pass")
            .arg(Argument::Template(vec![
                TemplatePart::Text(b"http://".to_vec()),
                TemplatePart::Variable("weights_1".into()),
            ]))
            .into(),
    ]);
    let text = write_tree(&[dollar_definition().into(), location.into()]).unwrap();
    let expected = r#"geo $dollar {
    default $;
}
location = '/a b;{}"\\' {
    # HTTPRoute shop/api\u{a}}
    return 404;
    set $a "${dollar}5";
    proxy_pass http://$weights_1;
}
"#;
    assert_eq!(String::from_utf8(text).unwrap(), expected);
}

#[test]
fn a_tree_that_could_not_be_read_again_is_refused() {
    let long = NewDirective::new("set").arg("$a").arg(Argument::plain(vec![b'a'; WORD_BYTES_MAX]));
    assert_eq!(write_tree(&[long.into()]), Err(WriteError::WordTooLong("set".into())));
    let edge = NewDirective::new("set").arg(Argument::plain(vec![b' '; WORD_BYTES_MAX - 3]));
    let text = write_tree(&[edge.clone().into()]).expect("a word of the greatest length");
    assert_eq!(first_difference(&[edge.into()], &parse_file(FileId(0), &text)), None);
    let name = NewDirective::new("set").arg(Argument::variable("a;b"));
    assert_eq!(write_tree(&[name.into()]), Err(WriteError::VariableName("a;b".into())));
    let mut deep = WriteNode::from(NewDirective::new("a"));
    for _ in 0..conf_syntax::BLOCK_DEPTH_MAX {
        deep = NewDirective::new("b").block(vec![deep]).into();
    }
    assert_eq!(write_tree(&[deep]), Err(WriteError::TooDeep));
}
