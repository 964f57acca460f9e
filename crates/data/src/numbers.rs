//! The numbers of a table: in memory, perhaps with room for more, or in a file of this process that is mapped into it.
//! Whoever reads them sees a slice either way, so that no learner knows whether its rows fit into memory.
//!
//! The file is written once, has no name any more when it is mapped, and is mapped for reading only: nobody can change or
//! shorten it while it is in use.

use crate::growing::Growing;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// Numbers that can be read back from bytes: f32 and u32.
pub trait Plain: bytemuck::Pod {}

impl Plain for f32 {}
impl Plain for u32 {}

/// Many numbers, in memory, perhaps with room for more, or in a mapped file.
#[derive(Clone)]
pub struct Numbers<T>(Kept<T>);

#[derive(Clone)]
enum Kept<T> {
    Memory(Vec<T>),
    Growing(Growing<T>),
    File(Arc<Mapping>),
}

impl<T: Plain> Numbers<T> {
    pub(crate) fn mapped(mapping: Arc<Mapping>) -> Numbers<T> {
        Numbers(Kept::File(mapping))
    }

    /// In memory, so that the vector's spare capacity is room for more.
    pub(crate) fn growing(values: Vec<T>) -> Numbers<T> {
        Numbers(Kept::Growing(Growing::of(values)))
    }

    /// How many more can be put behind them.
    pub(crate) fn room(&self) -> usize {
        if let Kept::Growing(values) = &self.0 { values.room() } else { 0 }
    }

    /// These and more behind them, where nothing need be copied for it.
    pub(crate) fn grown(&self, more: &[T]) -> Option<Numbers<T>> {
        let Kept::Growing(values) = &self.0 else { return None };
        values.grown(more).map(|grown| Numbers(Kept::Growing(grown)))
    }

    /// Whether they lie in a file.
    #[must_use]
    pub fn is_mapped(&self) -> bool {
        matches!(self.0, Kept::File(_))
    }

    /// The numbers, to change. Those in a file, or in memory that others may read, are copied first.
    fn to_mut(&mut self) -> &mut Vec<T> {
        if !matches!(self.0, Kept::Memory(_)) {
            self.0 = Kept::Memory(self.to_vec());
        }
        match &mut self.0 {
            Kept::Memory(values) => values,
            Kept::File(_) | Kept::Growing(_) => unreachable!("copied above"),
        }
    }
}

impl<T: Plain> Deref for Numbers<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        match &self.0 {
            Kept::Memory(values) => values,
            Kept::Growing(values) => values.numbers(),
            Kept::File(mapping) => mapping.numbers(),
        }
    }
}

impl<T: Plain> DerefMut for Numbers<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        self.to_mut()
    }
}

impl<T> From<Vec<T>> for Numbers<T> {
    fn from(values: Vec<T>) -> Numbers<T> {
        Numbers(Kept::Memory(values))
    }
}

impl<'a, T: Plain> Extend<&'a T> for Numbers<T> {
    fn extend<I: IntoIterator<Item = &'a T>>(&mut self, more: I) {
        self.to_mut().extend(more);
    }
}

impl<T: Plain + PartialEq> PartialEq for Numbers<T> {
    fn eq(&self, other: &Numbers<T>) -> bool {
        **self == **other
    }
}

impl<T: Plain + fmt::Debug> fmt::Debug for Numbers<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<'a, T: Plain> IntoIterator for &'a Numbers<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> std::slice::Iter<'a, T> {
        self.iter()
    }
}

/// A file that is mapped into memory for reading.
#[derive(Debug)]
pub(crate) struct Mapping(memmap2::Mmap);

impl Mapping {
    /// Maps a whole file that nobody else can reach.
    pub(crate) fn of(file: &std::fs::File) -> std::io::Result<Mapping> {
        #[expect(unsafe_code, reason = "the file has no name: nobody else can change or cut it")]
        let map = unsafe { memmap2::Mmap::map(file) }?;
        Ok(Mapping(map))
    }

    pub(crate) fn bytes(&self) -> usize {
        self.0.len()
    }

    fn numbers<T: Plain>(&self) -> &[T] {
        bytemuck::cast_slice(&self.0)
    }

    /// Takes the pages out of this process's memory; they come back from the file when they are read.
    pub(crate) fn release(&self) {
        let advice = memmap2::UncheckedAdvice::DontNeed;
        #[expect(
            unsafe_code,
            reason = "a read-only map of a file that stays: the bytes come back unchanged"
        )]
        // The kernel may refuse, and then the pages stay: nothing is lost.
        let _ = unsafe { self.0.unchecked_advise(advice) };
    }
}
