//! Writes a tree of directives as text, so that [`parse_file`](crate::parse_file) returns the same words byte for byte.
//!
//! Values never pass through text that is parsed again: an [`Argument`] says whether the directive evaluates variables
//! in it, and whether its bytes are data. A byte of data cannot end a word, a directive, a block or a comment.

use crate::lexer::WORD_BYTES_MAX;
use crate::parser::BLOCK_DEPTH_MAX;
use crate::tree::{TreeItem, first_error, list_directives};

/// Variable that holds one dollar sign. nginx has no escape for `$` where it evaluates variables; a configuration with
/// [`Argument::literal`] or [`TemplatePart::Text`] defines it once, with [`dollar_definition`].
pub const DOLLAR: &str = "dollar";

/// One word of a directive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Argument {
    /// Bytes in which the directive evaluates nothing.
    Plain(Vec<u8>),
    /// Text and variables in an argument that the directive evaluates.
    Template(Vec<TemplatePart>),
}

/// Part of an [`Argument::Template`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TemplatePart {
    /// Data: a `$` in it is written as a reference to [`DOLLAR`].
    Text(Vec<u8>),
    /// Name of a variable, of letters, digits and underscores, without `$`.
    Variable(String),
}

impl Argument {
    /// Returns an argument in which the directive evaluates nothing, or a word of the language (`on`, `default_server`).
    pub fn plain(bytes: impl AsRef<[u8]>) -> Argument {
        Argument::Plain(bytes.as_ref().to_vec())
    }

    /// Returns data for an argument in which the directive evaluates variables: none is evaluated in it.
    pub fn literal(bytes: impl AsRef<[u8]>) -> Argument {
        Argument::Template(vec![TemplatePart::Text(bytes.as_ref().to_vec())])
    }

    /// Returns a reference to one variable; `name` is without `$`.
    pub fn variable(name: impl Into<String>) -> Argument {
        Argument::Template(vec![TemplatePart::Variable(name.into())])
    }

    /// Returns the bytes that reading the written argument gives.
    pub fn bytes(&self) -> Vec<u8> {
        match self {
            Argument::Plain(bytes) => bytes.clone(),
            Argument::Template(parts) => {
                let mut out = Vec::new();
                for (index, part) in parts.iter().enumerate() {
                    match part {
                        TemplatePart::Text(text) => push_text(text, &mut out),
                        TemplatePart::Variable(name) => {
                            let braces =
                                parts[index + 1..].iter().find_map(TemplatePart::first_byte).is_some_and(continues);
                            push_variable(name, braces, &mut out);
                        }
                    }
                }
                out
            }
        }
    }

    fn check(&self) -> Result<(), WriteError> {
        let Argument::Template(parts) = self else { return Ok(()) };
        parts.iter().try_for_each(|part| match part {
            TemplatePart::Variable(name) if name.is_empty() || !name.bytes().all(is_name) => {
                Err(WriteError::VariableName(name.clone()))
            }
            _ => Ok(()),
        })
    }
}

impl TemplatePart {
    fn first_byte(&self) -> Option<u8> {
        match self {
            TemplatePart::Text(text) => text.first().copied(),
            TemplatePart::Variable(_) => Some(b'$'),
        }
    }
}

impl From<&str> for Argument {
    /// Converts a word of the language; data goes through [`Argument::plain`] and [`Argument::literal`].
    fn from(word: &str) -> Argument {
        Argument::plain(word)
    }
}

/// Directive of a tree to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewDirective {
    pub name: Argument,
    pub args: Vec<Argument>,
    /// Lines between braces; `None` for a directive that ends with `;`.
    pub block: Option<Vec<WriteNode>>,
}

/// Line of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteNode {
    Directive(NewDirective),
    /// Text behind `# `. Control characters are written as escapes, so that no text can leave its line.
    Comment(String),
    /// An empty line.
    Blank,
}

impl NewDirective {
    /// Returns a directive without arguments. The name is part of the program, never data.
    pub fn new(name: &'static str) -> NewDirective {
        NewDirective { name: Argument::plain(name), args: Vec::new(), block: None }
    }

    /// Returns a line of a block whose lines begin with data: `map`, `geo`, `split_clients`.
    pub fn entry(key: Argument) -> NewDirective {
        NewDirective { name: key, args: Vec::new(), block: None }
    }

    /// Appends an argument.
    #[must_use]
    pub fn arg(mut self, argument: impl Into<Argument>) -> NewDirective {
        self.args.push(argument.into());
        self
    }

    /// Appends arguments.
    #[must_use]
    pub fn args(mut self, arguments: impl IntoIterator<Item = Argument>) -> NewDirective {
        self.args.extend(arguments);
        self
    }

    /// Makes it a block with these lines.
    #[must_use]
    pub fn block(mut self, lines: Vec<WriteNode>) -> NewDirective {
        self.block = Some(lines);
        self
    }
}

impl From<NewDirective> for WriteNode {
    fn from(directive: NewDirective) -> WriteNode {
        WriteNode::Directive(directive)
    }
}

/// Reason why a tree has no text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteError {
    /// A word of the directive with this name has more than [`WORD_BYTES_MAX`] bytes as text.
    WordTooLong(String),
    /// More than [`BLOCK_DEPTH_MAX`] nested blocks.
    TooDeep,
    /// Not a name of a variable.
    VariableName(String),
}

impl std::fmt::Display for WriteError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            WriteError::WordTooLong(name) => {
                write!(f, "an argument of \"{name}\" is longer than {WORD_BYTES_MAX} bytes")
            }
            WriteError::TooDeep => write!(f, "more than {BLOCK_DEPTH_MAX} nested blocks"),
            WriteError::VariableName(name) => write!(f, "\"{}\" is no name of a variable", name.escape_debug()),
        }
    }
}

impl std::error::Error for WriteError {}

/// Returns the definition of [`DOLLAR`], for the `http` and `stream` blocks that use it.
pub fn dollar_definition() -> NewDirective {
    let value = NewDirective::new("default").arg("$");
    NewDirective::new("geo").arg(Argument::variable(DOLLAR)).block(vec![value.into()])
}

/// Writes lines with four spaces of indentation for each block.
///
/// # Errors
/// If the text could not be read again: [`WriteError`].
pub fn write_tree(nodes: &[WriteNode]) -> Result<Vec<u8>, WriteError> {
    let mut out = Vec::new();
    write_nodes(nodes, 0, &mut out)?;
    Ok(out)
}

/// Compares a tree with the directives that were read from its text: `None` if all words are the same, otherwise the first directive
/// that differs.
pub fn first_difference(written: &[WriteNode], read: &[TreeItem]) -> Option<String> {
    if let Some(error) = first_error(read) {
        return Some(format!("{error:?}"));
    }
    let mut read = list_directives(read).into_iter();
    let directives = written.iter().filter_map(|node| match node {
        WriteNode::Directive(directive) => Some(directive),
        WriteNode::Comment(_) | WriteNode::Blank => None,
    });
    for written in directives {
        let Some(read) = read.next() else { return Some(format!("{written:?} was not read")) };
        let words = written.args.iter().map(Argument::bytes);
        let is_same = written.name.bytes() == read.name.bytes
            && words.eq(read.args.iter().map(|word| word.bytes.clone()))
            && written.block.is_some() == read.block.is_some();
        if !is_same {
            return Some(format!("{written:?} was read as {read:?}"));
        }
        let blocks = written.block.as_deref().zip(read.block.as_deref());
        if let Some(difference) = blocks.and_then(|(written, read)| first_difference(written, read)) {
            return Some(difference);
        }
    }
    read.next().map(|more| format!("{more:?} was not written"))
}

fn write_nodes(nodes: &[WriteNode], depth: usize, out: &mut Vec<u8>) -> Result<(), WriteError> {
    for node in nodes {
        match node {
            WriteNode::Blank => out.push(b'\n'),
            WriteNode::Comment(text) => {
                indent(depth, out);
                out.extend_from_slice(b"# ");
                push_comment(text, out);
                out.push(b'\n');
            }
            WriteNode::Directive(directive) => write_directive(directive, depth, out)?,
        }
    }
    Ok(())
}

fn write_directive(directive: &NewDirective, depth: usize, out: &mut Vec<u8>) -> Result<(), WriteError> {
    indent(depth, out);
    let name = directive.name.bytes();
    for (index, argument) in std::iter::once(&directive.name).chain(&directive.args).enumerate() {
        argument.check()?;
        if index > 0 {
            out.push(b' ');
        }
        let start = out.len();
        push_word(&argument.bytes(), out);
        // The lexer counts the closing quote, too.
        if out.len() - start >= WORD_BYTES_MAX {
            return Err(WriteError::WordTooLong(String::from_utf8_lossy(&name).escape_debug().to_string()));
        }
    }
    match &directive.block {
        None => out.extend_from_slice(b";\n"),
        Some(lines) => {
            if depth + 1 >= BLOCK_DEPTH_MAX {
                return Err(WriteError::TooDeep);
            }
            out.extend_from_slice(b" {\n");
            write_nodes(lines, depth + 1, out)?;
            indent(depth, out);
            out.extend_from_slice(b"}\n");
        }
    }
    Ok(())
}

fn indent(depth: usize, out: &mut Vec<u8>) {
    out.resize(out.len() + 4 * depth, b' ');
}

/// Writes one word: in quotes unless each of its bytes stands for itself everywhere in a word.
fn push_word(word: &[u8], out: &mut Vec<u8>) {
    if !word.is_empty() && word.iter().all(|byte| is_bare(*byte)) {
        out.extend_from_slice(word);
        return;
    }
    let quote = if word.contains(&b'"') && !word.contains(&b'\'') { b'\'' } else { b'"' };
    out.push(quote);
    for &byte in word {
        match byte {
            b'\\' => out.extend_from_slice(b"\\\\"),
            _ if byte == quote => out.extend_from_slice(&[b'\\', byte]),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            _ => out.push(byte),
        }
    }
    out.push(quote);
}

fn is_bare(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"_-./:=*+~^@,%?&!|()<>[]$".contains(&byte)
}

fn push_text(text: &[u8], out: &mut Vec<u8>) {
    for &byte in text {
        match byte {
            b'$' => push_variable(DOLLAR, true, out),
            _ => out.push(byte),
        }
    }
}

fn push_variable(name: &str, braces: bool, out: &mut Vec<u8>) {
    let (open, close): (&[u8], &[u8]) = if braces { (b"${", b"}") } else { (b"$", b"") };
    out.extend_from_slice(open);
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(close);
}

fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Tells whether a byte behind a variable's name would be read as part of it.
fn continues(byte: u8) -> bool {
    is_name(byte)
}

fn push_comment(text: &str, out: &mut Vec<u8>) {
    let mut buffer = [0; 4];
    for c in text.chars() {
        if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') {
            out.extend_from_slice(c.escape_unicode().to_string().as_bytes());
        } else {
            out.extend_from_slice(c.encode_utf8(&mut buffer).as_bytes());
        }
    }
}
