//! How a feature declares its directives: one row each, in a struct whose field names are the directives' names.
//!
//! ```
//! use conf_schema::{directives, value::{Flag, Size}};
//! directives! {
//!     /// An example.
//!     pub struct Example from ExampleInput {
//!         /// Enables the feature.
//!         gzip: Flag = "off",
//!         /// Nothing unless it is set: the plan holds an `Option`.
//!         gzip_min_length: Size,
//!     }
//! }
//! assert_eq!(Example::ROWS.len(), 2);
//! ```
//! Where a row may stand and how many arguments it takes are facts of nginx and stand in `vocabulary/`.

use crate::complaint::Problem;
use crate::cx::Cx;
use crate::vocabulary::ContextArea;
use conf_syntax::{Directive, SourceSpan, Word};
use std::any::Any;
use std::rc::Rc;
use std::sync::Arc;

/// A kind of value: its grammar, its parser, and the effect of a second occurrence.
pub trait ValueKind: Sized + Clone + 'static {
    const SYNTAX: &'static str;
    /// Later occurrences in a block add to earlier ones instead of being duplicates.
    const REPEATS: bool = false;
    /// An unset block takes the enclosing block's value.
    const INHERITS: bool = true;
    /// Fails with the fault in the words, for the operator.
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem>;
    fn append(&mut self, _later: Self) {}
    /// A set block takes missing parts from the enclosing block's value: [`ValueKind::merge`].
    const MERGES: bool = false;
    fn merge(&mut self, _outer: &Self) {}
    /// Checks before `append` that a later occurrence may follow. Fails when the two exclude each other.
    fn meets(&self, _later: &Self, _cx: &mut Cx, _d: &Directive) -> Result<(), Problem> {
        Ok(())
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct At {
    pub span: SourceSpan,
    pub line: u32,
}

/// A directive's value in a block. Inputs share it with inner blocks that inherit it.
#[derive(Clone, Debug)]
pub struct GivenDirective<T> {
    pub value: T,
    pub at: At,
}

impl<T> GivenDirective<T> {
    pub fn new(value: T, at: At) -> Rc<GivenDirective<T>> {
        Rc::new(GivenDirective { value, at })
    }
}

pub struct DirectiveRow {
    pub name: &'static str,
    pub syntax: &'static str,
    /// In the configuration's syntax; `None` without a default.
    pub default: Option<&'static str>,
    pub doc: &'static [&'static str],
    pub inherits: bool,
    /// Parses the words into the feature's input (a `Box` of the table's `Input`).
    pub set: fn(&mut dyn Any, &mut Cx, &Directive) -> Result<(), Problem>,
    pub check_default: fn(&mut Cx) -> Result<(), Problem>,
}

/// A feature's rows, type-erased.
pub struct FeatureTable {
    pub feature: &'static str,
    pub area: ContextArea,
    pub rows: &'static [DirectiveRow],
    pub blank: fn() -> Box<dyn Any>,
    /// Names and positions of an input's set values, for the printed plan.
    pub given: fn(&dyn Any) -> Vec<(&'static str, At)>,
    pub copy: fn(&dyn Any) -> Box<dyn Any>,
    /// Copies missing values of the inner input (first) from the outer one.
    pub inherit: fn(&mut dyn Any, &dyn Any),
    pub fill: fn(&mut dyn Any, &mut Cx),
    /// Plan of a complete input: an `Arc` of the table's `Plan`.
    pub resolve: fn(&dyn Any) -> Arc<dyn Any + Send + Sync>,
}

/// Returns a directive that no file has: a default, which [`Directive::is_synthetic`] tells from others.
pub fn synthetic_directive(name: &str, text: &str) -> Directive {
    let line = format!("{name} {text};");
    let items = conf_syntax::parse_file(conf_syntax::FileId::NONE, line.as_bytes());
    match items.into_iter().next() {
        Some(conf_syntax::TreeItem::Directive(d)) => d,
        _ => Directive { name: Word { bytes: name.into(), ..Word::default() }, ..Directive::default() },
    }
}

/// Name of a directive from its field: `r#return` is `return`.
pub const fn plain_name(name: &'static str) -> &'static str {
    match name.as_bytes() {
        [b'r', b'#', ..] => name.split_at(2).1,
        _ => name,
    }
}

/// Sets one field: the body of every row. Fails on a duplicate, or as the value's parser.
pub fn set_field<T: ValueKind>(
    slot: &mut Option<Rc<GivenDirective<T>>>,
    cx: &mut Cx,
    d: &Directive,
) -> Result<(), Problem> {
    if slot.is_some() && !T::REPEATS {
        return Err(Problem::duplicate());
    }
    let value = T::parse(cx, d)?;
    match slot {
        Some(earlier) => {
            let earlier = Rc::make_mut(earlier);
            earlier.value.meets(&value, cx, d)?;
            earlier.value.append(value);
        }
        None => *slot = Some(GivenDirective::new(value, At { span: d.span, line: d.line })),
    }
    Ok(())
}

/// Value of a default; a test parses the defaults of all rows.
pub fn default_of<T: ValueKind>(cx: &mut Cx, name: &str, text: &str) -> Result<T, Problem> {
    T::parse(cx, &synthetic_directive(name, text))
}

#[macro_export]
macro_rules! directives {
    ($(#[doc = $about:literal])* pub struct $Plan:ident from $Input:ident {
        $( $(#[doc = $doc:literal])* $field:ident : $T:ty $(= $default:literal)? , )*
    }) => {
        $(#[doc = $about])*
        #[derive(Clone)]
        pub struct $Plan { $( $(#[doc = $doc])* pub $field: $crate::directives!(@ty $T $(, $default)?), )* }

        #[doc = concat!("Values of [`", stringify!($Plan), "`] that a block gives, before inheritance.")]
        #[derive(Clone, Default)]
        pub struct $Input { $(
            #[doc = concat!("`", stringify!($field), "`; `None`: the block does not give it.")]
            pub $field: Option<std::rc::Rc<$crate::GivenDirective<$T>>>,
        )* }

        impl $Plan {
            /// The rows of the table, in their order.
            pub const ROWS: &'static [$crate::DirectiveRow] = &[ $( $crate::DirectiveRow {
                name: $crate::table::plain_name(stringify!($field)),
                syntax: <$T as $crate::ValueKind>::SYNTAX,
                default: $crate::directives!(@default $($default)?),
                doc: &[ $($doc),* ],
                inherits: <$T as $crate::ValueKind>::INHERITS,
                set: |input, cx, d| match input.downcast_mut::<$Input>() {
                    Some(input) => $crate::table::set_field(&mut input.$field, cx, d),
                    None => Err($crate::Problem::directive("was given to another feature")),
                },
                #[allow(unused_variables)]
                check_default: |cx| {
                    $( $crate::table::default_of::<$T>(cx, $crate::table::plain_name(stringify!($field)), $default)?; )?
                    Ok(())
                },
            } ),* ];

            /// Returns the table as that of a feature in an area.
            pub const fn table(feature: &'static str, area: $crate::ContextArea) -> $crate::FeatureTable {
                $crate::FeatureTable {
                    feature,
                    area,
                    rows: Self::ROWS,
                    blank: || Box::<$Input>::default(),
                    given: |input| input.downcast_ref::<$Input>().map($Input::given).unwrap_or_default(),
                    copy: |input| Box::new(input.downcast_ref::<$Input>().cloned().unwrap_or_default()),
                    inherit: |inner, outer| {
                        if let (Some(inner), Some(outer)) = (inner.downcast_mut::<$Input>(), outer.downcast_ref()) {
                            inner.inherit(outer);
                        }
                    },
                    fill: |input, cx| {
                        if let Some(input) = input.downcast_mut::<$Input>() {
                            input.fill(cx);
                        }
                    },
                    resolve: |input| match input.downcast_ref::<$Input>() {
                        Some(input) => std::sync::Arc::new(input.resolve()),
                        None => std::sync::Arc::new($Input::default().resolve()),
                    },
                }
            }
        }

        #[allow(dead_code, unused_variables, unused_mut)]
        impl $Input {
            /// Takes values of the enclosing block where this one gives none. To be called from the outermost block
            /// inwards.
            pub fn inherit(&mut self, outer: &$Input) {
                $( if <$T as $crate::ValueKind>::INHERITS && self.$field.is_none() {
                    self.$field.clone_from(&outer.$field);
                } else if <$T as $crate::ValueKind>::MERGES
                    && let (Some(own), Some(outer)) = (&mut self.$field, &outer.$field)
                {
                    <$T as $crate::ValueKind>::merge(&mut std::rc::Rc::make_mut(own).value, &outer.value);
                } )*
            }
            /// Sets defaults where no block gives a value.
            pub fn fill(&mut self, cx: &mut $crate::Cx) {
                $( $( if self.$field.is_none() {
                    match $crate::table::default_of::<$T>(cx, $crate::table::plain_name(stringify!($field)), $default) {
                        Ok(value) => self.$field = Some($crate::GivenDirective::new(value, $crate::At::default())),
                        Err(problem) => panic!("the default of {} does not parse: {problem:?}", $crate::table::plain_name(stringify!($field))),
                    }
                } )? )*
            }
            /// Returns the values that apply in the block, with defaults for missing ones.
            pub fn resolve(&self) -> $Plan {
                $Plan { $( $field: $crate::directives!(@resolve self.$field, $field $(, $default)?), )* }
            }
            /// Returns the names of the given directives, with their places.
            pub fn given(&self) -> Vec<(&'static str, $crate::At)> {
                let mut out = Vec::new();
                $( if let Some(given) = &self.$field { out.push(($crate::table::plain_name(stringify!($field)), given.at)); } )*
                out
            }
        }
    };
    (@ty $T:ty) => { Option<$T> };
    (@ty $T:ty, $default:literal) => { $T };
    (@default) => { None };
    (@default $default:literal) => { Some($default) };
    (@resolve $value:expr, $field:ident) => { $value.as_ref().map(|given| given.value.clone()) };
    (@resolve $value:expr, $field:ident, $default:literal) => {
        match &$value {
            Some(given) => given.value.clone(),
            None => match $crate::table::default_of(&mut $crate::Cx::default(), $crate::table::plain_name(stringify!($field)), $default) {
                Ok(value) => value,
                Err(problem) => panic!("the default of {} does not parse: {problem:?}", $crate::table::plain_name(stringify!($field))),
            },
        }
    };
}
