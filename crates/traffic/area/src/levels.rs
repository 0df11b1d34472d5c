//! Inheritance: the input of each table at a level of blocks, merged with the enclosing levels.

use conf_schema::{CheckedBlock, Cx, FeatureTable};
use std::any::Any;
use std::cell::OnceCell;
use std::rc::Rc;
use std::sync::Arc;

/// A table's input at a level, shared with inner blocks that add nothing.
pub struct BlockLevel {
    pub input: Box<dyn Any>,
    /// The resolved plan of the table's type.
    pub plan: Arc<dyn Any + Send + Sync>,
    /// A directive of the table is set, here or at an enclosing level.
    pub is_given: bool,
    /// Level shared by all inner blocks without input, created on demand; `None`: this level.
    silent: OnceCell<Option<Rc<BlockLevel>>>,
}

impl BlockLevel {
    fn new(table: &FeatureTable, input: Box<dyn Any>, is_given: bool) -> Rc<BlockLevel> {
        let plan = (table.resolve)(&*input);
        Rc::new(BlockLevel { input, plan, is_given, silent: OnceCell::new() })
    }

    fn of_silent(self: &Rc<BlockLevel>, table: &FeatureTable) -> Rc<BlockLevel> {
        let inner = self.silent.get_or_init(|| {
            // Directives that are not inherited must not leak in: compares with an input that inherits nothing.
            let mut blank = (table.blank)();
            (table.inherit)(&mut *blank, &*self.input);
            let whole = (table.given)(&*blank).len() == (table.given)(&*self.input).len();
            (!whole).then(|| BlockLevel::new(table, blank, self.is_given))
        });
        inner.as_ref().unwrap_or(self).clone()
    }
}

/// Levels of a block, one per table with its index. `outer`: the enclosing block's; the outermost takes defaults.
pub fn block_levels(
    tables: &[(FeatureTable, usize)],
    cx: &mut Cx,
    block: &mut CheckedBlock<'_>,
    outer: Option<&[Rc<BlockLevel>]>,
) -> Vec<Rc<BlockLevel>> {
    let level = |(i, (table, index)): (usize, &(FeatureTable, usize))| {
        let own = block.take_any(*index);
        match (outer.and_then(|outer| outer.get(i)), own) {
            (Some(outer), None) => outer.of_silent(table),
            (Some(outer), Some(mut own)) => {
                (table.inherit)(&mut *own, &*outer.input);
                BlockLevel::new(table, own, true)
            }
            (None, own) => {
                let is_given = own.is_some();
                let mut own = own.unwrap_or_else(|| (table.blank)());
                (table.fill)(&mut *own, cx);
                BlockLevel::new(table, own, is_given)
            }
        }
    };
    tables.iter().enumerate().map(level).collect()
}

pub struct InnerLevels<'l> {
    outer: &'l [Rc<BlockLevel>],
    /// Levels of an inner block without input of its own.
    silent: Vec<Rc<BlockLevel>>,
}

impl<'l> InnerLevels<'l> {
    pub fn new(outer: &'l [Rc<BlockLevel>]) -> InnerLevels<'l> {
        InnerLevels { outer, silent: Vec::new() }
    }
    /// [`block_levels`] for one of the inner blocks.
    pub fn of(&mut self, tables: &[(FeatureTable, usize)], block: &mut CheckedBlock<'_>) -> Vec<Rc<BlockLevel>> {
        if self.silent.is_empty() {
            self.silent = tables.iter().zip(self.outer).map(|((table, _), outer)| outer.of_silent(table)).collect();
        }
        let mut levels = self.silent.clone();
        for (index, mut own) in block.take_all() {
            let Some(at) = tables.iter().position(|(_, table)| *table == index) else { continue };
            if let (Some((table, _)), Some(outer), Some(level)) =
                (tables.get(at), self.outer.get(at), levels.get_mut(at))
            {
                (table.inherit)(&mut *own, &*outer.input);
                *level = BlockLevel::new(table, own, true);
            }
        }
        levels
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use conf_schema::value::Flag;
    use conf_schema::{ContextArea, Contexts, Directive, Problem, Schema, ValueKind, check_tree, directives};
    use conf_syntax::{FileId, parse_file};

    #[derive(Clone)]
    struct Own;

    impl ValueKind for Own {
        const SYNTAX: &'static str = "";
        const INHERITS: bool = false;
        fn parse(_: &mut Cx, _: &Directive) -> Result<Self, Problem> {
            Ok(Own)
        }
    }

    directives! {
        /// An inherited flag, and a mark that is not inherited.
        pub struct Example from ExampleInput {
            gzip: Flag = "off",
            internal: Own,
        }
    }

    #[test]
    fn blocks_that_say_nothing_share_what_is_inherited() {
        let text = b"location / { internal; gzip on; location /a { location /aa {} } location /b {} location /c { gzip off; } }";
        let (items, mut cx) = (parse_file(FileId(0), text), Cx::default());
        let schema = Schema::new(vec![Example::table("example", ContextArea::Http)], "a test");
        let mut root = check_tree(&schema, &mut cx, &items, Contexts::server).root;
        let tables = [(Example::table("example", ContextArea::Http), 0)];
        let outermost = block_levels(&tables, &mut cx, &mut root, None);
        let block = &mut root.children[0];
        let outer = block_levels(&tables, &mut cx, block, Some(&outermost));
        let mut inner = |at: usize| block_levels(&tables, &mut cx, &mut block.children[at], Some(&outer)).remove(0);
        let (a, b, c) = (inner(0), inner(1), inner(2));
        let aa = block_levels(&tables, &mut cx, &mut block.children[0].children[0], Some(std::slice::from_ref(&a)))
            .remove(0);
        let said = |level: &BlockLevel| {
            let plan = level.plan.downcast_ref::<Example>().expect("its plan");
            (plan.gzip, plan.internal.is_some())
        };
        assert_eq!(said(&outermost[0]), (false, false));
        assert_eq!(said(&outer[0]), (true, true));
        assert_eq!([&a, &b, &aa].map(|level| said(level)), [(true, false); 3]);
        assert_eq!(said(&c), (false, false));
        assert!(Rc::ptr_eq(&a, &b) && Rc::ptr_eq(&a, &aa));
    }
}
