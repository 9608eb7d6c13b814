//! CUPTI's functions for samples of instructions.
//!
//! Owns: their calls. Because: not every CUPTI has them, and each takes a structure that says its own size. Does not:
//! decide what is sampled.

use std::ffi::{c_char, c_void};
use std::ptr::{self, NonNull};

use super::calls::{Error, checked, functions, symbol};
use super::sampler_layout::{
    Attribute, Configuration, ContextParameters, CountReasons, Crc, Data, GetDataParameters,
    GetReasonsParameters, REASON_BYTES, attribute,
};

functions!(
    /// All sampling functions, or none.
    Functions {
        enable: c"cuptiPCSamplingEnable" fn(*mut ContextParameters);
        disable: c"cuptiPCSamplingDisable" fn(*mut ContextParameters);
        configure: c"cuptiPCSamplingSetConfigurationAttribute" fn(*mut Configuration);
        configuration: c"cuptiPCSamplingGetConfigurationAttribute" fn(*mut Configuration);
        data: c"cuptiPCSamplingGetData" fn(*mut GetDataParameters);
        reason_count: c"cuptiPCSamplingGetNumStallReasons" fn(*mut CountReasons);
        reasons: c"cuptiPCSamplingGetStallReasons" fn(*mut GetReasonsParameters);
        crc: c"cuptiGetCubinCrc" fn(*mut Crc);
        context_number: c"cuptiGetContextId" fn(usize, *mut u32);
    }
);

/// Maximum number of reasons; there are about forty.
const REASONS_MAX: usize = 512;

/// The sampling functions of a CUPTI.
#[derive(Clone, Copy)]
pub(crate) struct Sampler(Functions);

impl Sampler {
    /// Loads them; `None` when the library lacks one.
    pub(crate) fn load(library: NonNull<c_void>) -> Option<Self> {
        Functions::load(library).map(Self)
    }

    pub(crate) fn enable(&self, context: usize) -> Result<(), Error> {
        let mut of = of_context(context);
        checked((self.0.enable)(&raw mut of))
    }

    /// Disables sampling; CUPTI writes the remaining samples into the configured buffer.
    pub(crate) fn disable(&self, context: usize) -> Result<(), Error> {
        let mut of = of_context(context);
        checked((self.0.disable)(&raw mut of))
    }

    pub(crate) fn configure(&self, context: usize, attributes: &mut [Attribute]) -> Result<(), Error> {
        let mut configuration = configuration(context, attributes);
        checked((self.0.configure)(&raw mut configuration))
    }

    /// The current period; `None` when CUPTI does not report it.
    pub(crate) fn period(&self, context: usize) -> Option<u32> {
        let mut request = [Attribute { kind: attribute::PERIOD, status: 0, value: [0; 3] }];
        let mut configuration = configuration(context, &mut request);
        let answered = (self.0.configuration)(&raw mut configuration) == 0;
        answered.then_some(request[0].value[0] as u32)
    }

    /// Makes CUPTI write samples into `data`.
    pub(crate) fn read(&self, context: usize, data: *mut Data) -> Result<(), Error> {
        let mut request = GetDataParameters {
            size: size_of::<GetDataParameters>(),
            private: ptr::null_mut(),
            context,
            data,
        };
        checked((self.0.data)(&raw mut request))
    }

    /// CUPTI's number of a context, as in activities.
    pub(crate) fn context_number(&self, context: usize) -> u32 {
        let mut number = 0;
        let result = (self.0.context_number)(context, &raw mut number);
        if result == 0 { number } else { 0 }
    }

    /// CUPTI's id of this device code in samples.
    pub(crate) fn crc(&self, cubin: &[u8]) -> Option<u64> {
        let mut request =
            Crc { size: size_of::<Crc>(), bytes: cubin.len(), cubin: cubin.as_ptr().cast(), crc: 0 };
        ((self.0.crc)(&raw mut request) == 0).then_some(request.crc)
    }

    /// The stall reasons of the context's device: CUPTI's number and the name.
    pub(crate) fn reasons(&self, context: usize) -> Result<Vec<(u32, String)>, Error> {
        let mut count = 0;
        let mut request = CountReasons {
            size: size_of::<CountReasons>(),
            private: ptr::null_mut(),
            context,
            count: &raw mut count,
        };
        checked((self.0.reason_count)(&raw mut request))?;
        let count = count.min(REASONS_MAX);
        let mut numbers = vec![0u32; count];
        // Always NUL-terminated: CUPTI gets one byte less than allocated.
        let mut texts = vec![[0u8; REASON_BYTES + 1]; count];
        let mut names: Vec<*mut c_char> =
            texts.iter_mut().map(|text| text.as_mut_ptr().cast::<c_char>()).collect();
        let mut request = GetReasonsParameters {
            size: size_of::<GetReasonsParameters>(),
            private: ptr::null_mut(),
            context,
            count,
            numbers: numbers.as_mut_ptr(),
            names: names.as_mut_ptr(),
        };
        checked((self.0.reasons)(&raw mut request))?;
        let name = |text: &[u8; REASON_BYTES + 1]| {
            let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
            String::from_utf8_lossy(text).into_owned()
        };
        Ok(numbers.into_iter().zip(texts.iter().map(name)).collect())
    }
}

fn of_context(context: usize) -> ContextParameters {
    ContextParameters { size: size_of::<ContextParameters>(), private: ptr::null_mut(), context }
}

fn configuration(context: usize, attributes: &mut [Attribute]) -> Configuration {
    Configuration {
        size: size_of::<Configuration>(),
        private: ptr::null_mut(),
        context,
        count: attributes.len(),
        attributes: attributes.as_mut_ptr(),
    }
}
