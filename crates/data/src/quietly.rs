//! Calls into libraries that panic over some damaged files instead of refusing them.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

thread_local!(static IS_QUIET: Cell<bool> = const { Cell::new(false) });

/// What the call gives, or `None` where it panics. That a bad file was met is told by an error: nothing is printed.
pub(crate) fn quietly<T>(call: impl FnOnce() -> T) -> Option<T> {
    static HUSHED: Once = Once::new();
    HUSHED.call_once(|| {
        let before = take_hook();
        set_hook(Box::new(move |panic| {
            if !IS_QUIET.get() {
                before(panic);
            }
        }));
    });
    let was_quiet = IS_QUIET.replace(true);
    let called = catch_unwind(AssertUnwindSafe(call));
    IS_QUIET.set(was_quiet);
    called.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_caught_and_hushed_and_others_are_not() {
        let outside = || IS_QUIET.get();
        assert_eq!(quietly(|| IS_QUIET.get()), Some(true));
        assert!(!outside());
        assert_eq!(quietly(|| -> i32 { panic!("this must not be printed") }), None);
        assert!(!outside(), "what panics now is a bug of ours");
        let nested = quietly(|| (quietly(|| -> i32 { panic!("nor this") }), IS_QUIET.get()));
        assert_eq!(nested, Some((None, true)));
        let elsewhere =
            quietly(|| std::thread::scope(|scope| scope.spawn(|| IS_QUIET.get()).join().unwrap()));
        assert_eq!(elsewhere, Some(false), "other threads are not hushed");
    }
}
