//! Compiled stylesheets: immutable, shared by all transformations.

use crate::names::{ExpandedName, NameId, NameTable, QName};
use crate::serialize::OutputOptions;
use crate::tree::Document;
use crate::xpath::ast::{Expr, NodeTest};
use crate::xpath::pattern::{Alternative, MatchPattern};
use std::collections::HashMap;
use std::sync::Arc;

/// Stylesheet with everything it includes and imports.
pub struct Stylesheet {
    pub(crate) names: Arc<NameTable>,
    pub(crate) scopes: Vec<InScope>,
    /// Text of the stylesheets' documents, for `document("")`.
    pub(crate) documents: Vec<(String, Document)>,
    pub(crate) blocks: Vec<NodeBlock>,
    pub(crate) templates: Vec<SheetTemplate>,
    pub(crate) named: HashMap<ExpandedName, usize>,
    pub(crate) rules: HashMap<Option<ExpandedName>, RuleTable>,
    pub(crate) functions: HashMap<ExpandedName, FunctionDef>,
    pub(crate) globals: HashMap<ExpandedName, GlobalDef>,
    /// Names of global variables in the order of evaluation.
    pub(crate) global_order: Vec<ExpandedName>,
    pub(crate) keys: HashMap<ExpandedName, Vec<KeyDef>>,
    /// Attributes of the sets, with those of the sets they use.
    pub(crate) attribute_sets: HashMap<ExpandedName, Vec<BlockId>>,
    pub(crate) formats: HashMap<ExpandedName, DecimalFormat>,
    pub(crate) default_format: DecimalFormat,
    /// Highest precedence and priority first.
    pub(crate) spaces: Vec<SpaceRule>,
    pub(crate) output: OutputOptions,
}

/// Namespaces and base of an instruction.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct InScope {
    pub namespaces: Vec<(NameId, NameId)>,
    pub default_namespace: NameId,
    pub base: String,
}

pub(crate) type BlockId = u32;
pub(crate) type NodeBlock = Vec<LocatedNode>;

/// Instruction with its position.
pub(crate) struct LocatedNode {
    pub instruction: Instruction,
    pub scope: u32,
    pub line: u32,
}

pub(crate) struct SheetTemplate {
    pub matches: Option<MatchPattern>,
    pub body: BlockId,
    pub scope: u32,
    pub precedence: u32,
    /// The lowest precedence of what the template's stylesheet imports.
    pub lowest: u32,
}

/// A match of a template, in the order of choice.
pub(crate) struct TemplateRule {
    pub template: usize,
    pub path: Alternative,
    pub rank: u32,
}

#[derive(Default)]
pub(crate) struct RuleTable {
    /// Rules whose last step names an element or attribute.
    pub by_name: HashMap<ExpandedName, Vec<TemplateRule>>,
    pub others: Vec<TemplateRule>,
}

pub(crate) struct FunctionDef {
    pub body: BlockId,
}

pub(crate) struct GlobalDef {
    pub value: VariableValue,
    pub is_param: bool,
    pub scope: u32,
}

pub(crate) enum VariableValue {
    Empty,
    Select(Expr),
    Body(BlockId),
}

pub(crate) struct KeyDef {
    pub matches: MatchPattern,
    pub value: Expr,
    pub scope: u32,
}

/// Definition of an attribute set.
pub(crate) struct AttributeSet {
    pub uses: Vec<ExpandedName>,
    /// Names as written, and the attributes' instructions.
    pub attributes: Vec<(String, BlockId)>,
    pub precedence: u32,
}

/// `xsl:strip-space` and `xsl:preserve-space`.
pub(crate) struct SpaceRule {
    pub test: NodeTest,
    pub strip: bool,
    pub precedence: u32,
}

/// `xsl:decimal-format` (section 12.3).
#[derive(Clone, Debug)]
pub(crate) struct DecimalFormat {
    pub decimal: char,
    pub grouping: char,
    pub infinity: String,
    pub minus: char,
    pub nan: String,
    pub percent: char,
    pub per_mille: char,
    pub zero: char,
    pub digit: char,
    pub separator: char,
}

impl Default for DecimalFormat {
    fn default() -> DecimalFormat {
        DecimalFormat {
            decimal: '.',
            grouping: ',',
            infinity: "Infinity".into(),
            minus: '-',
            nan: "NaN".into(),
            percent: '%',
            per_mille: '\u{2030}',
            zero: '0',
            digit: '#',
            separator: ';',
        }
    }
}

/// Attribute value template (section 7.6.2).
pub(crate) struct Avt(pub Vec<AvtPart>);

pub(crate) enum AvtPart {
    Text(String),
    Expr(Expr),
}

pub(crate) struct SortKey {
    pub select: Expr,
    pub numeric: Option<Avt>,
    pub order: Option<Avt>,
    pub scope: u32,
}

pub(crate) struct WithParam {
    pub name: ExpandedName,
    pub value: VariableValue,
    pub scope: u32,
}

/// Literal result element.
pub(crate) struct Literal {
    pub name: QName,
    pub declarations: Vec<(NameId, NameId)>,
    pub attributes: Vec<(QName, Avt)>,
    pub sets: Vec<ExpandedName>,
    pub body: BlockId,
}

pub(crate) struct NumberInstruction {
    pub value: Option<Expr>,
    pub level: NumberLevel,
    pub count: Option<MatchPattern>,
    pub from: Option<MatchPattern>,
    pub format: Avt,
    pub separator: Option<Avt>,
    pub size: Option<Avt>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NumberLevel {
    Single,
    Multiple,
    Any,
}

pub(crate) enum Instruction {
    Text {
        text: String,
        raw: bool,
    },
    Literal(Box<Literal>),
    ValueOf {
        select: Expr,
        raw: bool,
    },
    CopyOf(Expr),
    Copy {
        sets: Vec<ExpandedName>,
        body: BlockId,
    },
    ApplyTemplates {
        select: Option<Expr>,
        mode: Option<ExpandedName>,
        sorts: Vec<SortKey>,
        params: Vec<WithParam>,
    },
    ApplyImports(Vec<WithParam>),
    CallTemplate {
        name: ExpandedName,
        params: Vec<WithParam>,
    },
    ForEach {
        select: Expr,
        sorts: Vec<SortKey>,
        body: BlockId,
    },
    If {
        test: Expr,
        body: BlockId,
    },
    Choose {
        whens: Vec<(Expr, BlockId)>,
        otherwise: Option<BlockId>,
    },
    Variable {
        name: ExpandedName,
        value: VariableValue,
    },
    Param {
        name: ExpandedName,
        value: VariableValue,
    },
    Element {
        name: Avt,
        namespace: Option<Avt>,
        sets: Vec<ExpandedName>,
        body: BlockId,
    },
    Attribute {
        name: Avt,
        namespace: Option<Avt>,
        body: BlockId,
    },
    Comment(BlockId),
    Processing {
        name: Avt,
        body: BlockId,
    },
    Number(Box<NumberInstruction>),
    Message {
        terminate: bool,
        body: BlockId,
    },
    /// Instruction of a later version or an extension: its `xsl:fallback`s.
    Fallback(BlockId),
    /// Instruction that fails if it runs.
    Unsupported(String),
    FunctionResult(VariableValue),
}

impl Instruction {
    /// The element's name, for messages.
    pub fn name(&self) -> &'static str {
        match self {
            Instruction::Text { .. } => "text",
            Instruction::Literal(_) => "literal",
            Instruction::ValueOf { .. } => "value-of",
            Instruction::CopyOf(_) => "copy-of",
            Instruction::Copy { .. } => "copy",
            Instruction::ApplyTemplates { .. } => "apply-templates",
            Instruction::ApplyImports(_) => "apply-imports",
            Instruction::CallTemplate { .. } => "call-template",
            Instruction::ForEach { .. } => "for-each",
            Instruction::If { .. } => "if",
            Instruction::Choose { .. } => "choose",
            Instruction::Variable { .. } => "variable",
            Instruction::Param { .. } => "param",
            Instruction::Element { .. } => "element",
            Instruction::Attribute { .. } => "attribute",
            Instruction::Comment(_) => "comment",
            Instruction::Processing { .. } => "processing-instruction",
            Instruction::Number(_) => "number",
            Instruction::Message { .. } => "message",
            Instruction::Fallback(_) => "fallback",
            Instruction::Unsupported(_) => "extension",
            Instruction::FunctionResult(_) => "result",
        }
    }
}

impl Stylesheet {
    pub(crate) fn block(&self, id: BlockId) -> &[LocatedNode] {
        self.blocks.get(id as usize).map_or(&[], |block| block)
    }
    pub(crate) fn in_scope(&self, id: u32) -> &InScope {
        static EMPTY: InScope =
            InScope { namespaces: Vec::new(), default_namespace: NameId::NONE, base: String::new() };
        self.scopes.get(id as usize).unwrap_or(&EMPTY)
    }
    /// Media type of `xsl:output`; an importing stylesheet's goes before an imported one's.
    pub fn media_type(&self) -> Option<&str> {
        self.output.media_type.as_deref()
    }
    /// Encoding of `xsl:output`, as written.
    pub fn encoding(&self) -> Option<&str> {
        self.output.encoding.as_deref()
    }
}
