//! Numbers of a model as Burn's tensors without a copy. A tensor owns its bytes, a model is only borrowed: so the bytes are a
//! loan, which ends when the borrow does. Whoever still has a tensor of it then (Burn frees what a graph has remembered when
//! the next one is computed) is given a copy, and whoever writes has had one before.

use burn_std::{AccessError, AccessPolicy, AllocationController, AllocationProperty, Bytes};
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::sync::{Arc, OnceLock};

/// Numbers that are lent; the loan ends with it.
pub(crate) struct Loan<'a> {
    lent: Arc<Lent>,
    numbers: PhantomData<&'a [f32]>,
}

/// Where lent numbers are, and where they are once the loan has ended.
struct Lent {
    start: *const f32,
    len: usize,
    copy: OnceLock<Vec<f32>>,
}

#[expect(unsafe_code, reason = "numbers that are read, as those of a slice")]
unsafe impl Send for Lent {}
#[expect(unsafe_code, reason = "numbers that are read, as those of a slice")]
unsafe impl Sync for Lent {}

impl<'a> Loan<'a> {
    /// Lends numbers. Loans are dropped, never forgotten.
    pub(crate) fn new(numbers: &'a [f32]) -> Loan<'a> {
        let lent = Lent { start: numbers.as_ptr(), len: numbers.len(), copy: OnceLock::new() };
        Loan { lent: Arc::new(lent), numbers: PhantomData }
    }

    /// The lent numbers as bytes that a tensor can own.
    pub(crate) fn bytes(&self) -> Bytes {
        let reader = Reader { lent: self.lent.clone(), own: None };
        #[expect(unsafe_code, reason = "a reader has as many bytes as it says")]
        unsafe {
            Bytes::from_controller(Box::new(reader), 4 * self.lent.len)
        }
    }
}

impl Drop for Loan<'_> {
    fn drop(&mut self) {
        // Tensors live on the thread that made them, so nobody else comes to have one meanwhile.
        if Arc::strong_count(&self.lent) > 1 {
            self.lent.copy.get_or_init(|| self.lent.numbers().to_vec());
        }
    }
}

impl Lent {
    fn numbers(&self) -> &[f32] {
        match self.copy.get() {
            Some(copy) => copy,
            #[expect(
                unsafe_code,
                reason = "without a copy the loan has not ended: the numbers are borrowed still"
            )]
            None => unsafe { std::slice::from_raw_parts(self.start, self.len) },
        }
    }
}

/// One owner of lent numbers, with its own once it has written to them.
struct Reader {
    lent: Arc<Lent>,
    own: Option<Vec<f32>>,
}

impl AllocationController for Reader {
    fn alloc_align(&self) -> usize {
        align_of::<f32>()
    }

    fn property(&self) -> AllocationProperty {
        AllocationProperty::Other
    }

    fn capacity(&self) -> usize {
        4 * self.lent.len
    }

    fn memory(&self, _: AccessPolicy) -> Result<&[MaybeUninit<u8>], AccessError> {
        let numbers = self.own.as_deref().unwrap_or_else(|| self.lent.numbers());
        #[expect(unsafe_code, reason = "the same bytes; numbers have no others")]
        let bytes =
            unsafe { std::slice::from_raw_parts(numbers.as_ptr().cast(), size_of_val(numbers)) };
        Ok(bytes)
    }

    #[expect(unsafe_code, reason = "the trait has it so")]
    unsafe fn memory_mut(
        &mut self,
        policy: AccessPolicy,
    ) -> Result<&mut [MaybeUninit<u8>], AccessError> {
        if self.own.is_none() && !policy.copy_allowed() {
            return Err(AccessError::WouldCopy);
        }
        let lent = &self.lent;
        let numbers = self.own.get_or_insert_with(|| lent.numbers().to_vec());
        let size = size_of_val(&numbers[..]);
        // SAFETY: the same bytes, of which every pattern is a number; the caller writes no others.
        Ok(unsafe { std::slice::from_raw_parts_mut(numbers.as_mut_ptr().cast(), size) })
    }

    fn duplicate(&self) -> Option<Box<dyn AllocationController>> {
        let lent = self.lent.clone();
        self.own.is_none().then(|| Box::new(Reader { lent, own: None }) as Box<_>)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pass::{lent, numbers};

    #[test]
    fn a_tensor_of_lent_numbers_is_where_they_are() {
        let model = vec![1.0, 2.0, 3.0];
        let loan = Loan::new(&model);
        assert_eq!(loan.bytes().as_ptr(), model.as_ptr().cast());
        assert_eq!(numbers(lent::<1>(&loan, [3])), model);
    }

    #[test]
    fn what_outlives_the_loan_keeps_the_numbers_that_were_lent() {
        let mut model = vec![1.0, 2.0, 3.0];
        let loan = Loan::new(&model);
        let kept = lent::<1>(&loan, [3]);
        drop(loan);
        model[0] = 9.0;
        assert_eq!(numbers(kept), [1.0, 2.0, 3.0]);
        assert_eq!(model, [9.0, 2.0, 3.0]);
    }

    #[test]
    fn who_writes_does_not_write_to_the_lender() {
        let model = vec![1.0, 2.0];
        let loan = Loan::new(&model);
        let mut bytes = loan.bytes();
        let other = bytes.clone();
        bytes[3] = 0x40;
        assert_ne!(bytes, other);
        assert_eq!(model, [1.0, 2.0]);
        // The only owner of a tensor may compute in its place.
        assert_eq!(numbers(lent::<1>(&loan, [2]).mul_scalar(2.0)), [2.0, 4.0]);
        assert_eq!(model, [1.0, 2.0]);
    }
}
