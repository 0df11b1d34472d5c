//! Inheritance: what each table was told at a level of blocks, with what the enclosing levels have said.

use conf_schema::{Block, Cx, Table};
use std::any::Any;
use std::rc::Rc;
use std::sync::Arc;

/// One table's input at a level, shared while inner blocks say nothing.
#[derive(Clone)]
pub struct Level {
    pub input: Rc<dyn Any>,
    /// What the table's type makes of it: its plan, complete.
    pub plan: Arc<dyn Any + Send + Sync>,
}

/// The levels of a block: one for each table, which come with their places in the schema. `outer`: those of the enclosing
/// block, in the same order; the outermost block has none and takes the defaults.
pub fn of(tables: &[(Table, usize)], cx: &mut Cx, block: &mut Block<'_>, outer: Option<&[Level]>) -> Vec<Level> {
    let mut levels = Vec::with_capacity(tables.len());
    for (i, (table, index)) in tables.iter().enumerate() {
        let own = block.inputs.get_mut(*index).and_then(Option::take);
        let level = match (outer.and_then(|outer| outer.get(i)), own) {
            (Some(outer), None) => {
                // Directives that are not inherited must not leak in: compare with an input that inherits nothing.
                let mut blank = (table.blank)();
                (table.inherit)(&mut *blank, &*outer.input);
                if (table.given)(&*blank).len() == (table.given)(&*outer.input).len() {
                    outer.clone()
                } else {
                    let plan = (table.resolve)(&*blank);
                    Level { input: Rc::from(blank), plan }
                }
            }
            (Some(outer), Some(mut own)) => {
                (table.inherit)(&mut *own, &*outer.input);
                let plan = (table.resolve)(&*own);
                Level { input: Rc::from(own), plan }
            }
            (None, own) => {
                let mut own = own.unwrap_or_else(|| (table.blank)());
                (table.fill)(&mut *own, cx);
                let plan = (table.resolve)(&*own);
                Level { input: Rc::from(own), plan }
            }
        };
        levels.push(level);
    }
    levels
}
