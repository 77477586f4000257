// The function that XLA calls for a convolution on the CPU: two arrays and a result, packed, and a problem string. It
// runs in XLA's threads, on XLA's memory, and needs no lock of the interpreter.
#include <exception>
#include <new>

#include "bindings/call.h"
#include "bindings/settings.h"
#include "bindings/xla_ffi.h"
#include "core/error.h"

namespace vkconv::bindings {
namespace {

// The operands of a call with the pass's two arrays and its result, in the order of `jax.ffi.ffi_call`.
HostOperands operands_of(const xla::Call& call, const ConvProblem& p) {
  std::byte* first = call.arguments.buffers[0]->data;
  std::byte* second = call.arguments.buffers[1]->data;
  std::byte* made = call.results.buffers[0]->data;
  const bool forward = p.pass == Pass::forward, to_input = p.pass == Pass::input_grad;
  HostOperands operands;
  operands.input = contiguous_view(forward ? first : to_input ? made : second, p.input, p.in_channels);
  operands.weight = contiguous_weight(p.pass == Pass::weight_grad ? made : second, p);
  operands.output = contiguous_view(forward ? made : first, p.output, p.out_channels);
  return operands;
}

// The CPU, opened with the interpreter's lock, which XLA's threads do not have.
const OpenDevice* cpu_device = nullptr;

void compute(const xla::Call& call) {
  const xla::Text& text = *call.attributes.values[0];
  const ConvProblem p = parse_problem({text.data, text.size});
  const xla::Buffer& result = *call.results.buffers[0];
  for (std::int64_t a = 0; a < result.rank; ++a)
    if (result.extents[a] == 0) return;
  // With the precision of now: what is compiled follows the default.
  execute_without_interpreter(default_options(*cpu_device), p, {operands_of(call, p)});
}

xla::Error* failure(const xla::Call& call, const char* message, int code) {
  xla::ErrorArguments arguments{sizeof arguments, nullptr, message, code};
  return call.api->make_error(&arguments);
}

// Tells the version that the caller has: what xla_ffi.h declares is the same in all of them.
void tell_version(const xla::Call& call) {
  const auto* extension = reinterpret_cast<const xla::MetadataExtension*>(call.extensions);
  extension->metadata->version.major = 0;
  extension->metadata->version.minor = call.api ? call.api->version.minor : 1;
}

xla::Error* answer(xla::Call* call) {
  if (call->extensions && call->extensions->type == xla::kMetadata) {
    tell_version(*call);
    return nullptr;
  }
  if (call->stage != xla::kExecute) return nullptr;
  try {
    compute(*call);
    return nullptr;
  } catch (const std::bad_alloc& error) {
    return failure(*call, error.what(), xla::kResourceExhausted);
  } catch (const OutOfMemory& error) {
    return failure(*call, error.what(), xla::kResourceExhausted);
  } catch (const std::exception& error) {
    return failure(*call, error.what(), xla::kInternal);
  }
}

}  // namespace

void bind_xla(py::module_& m) {
  m.def("xla_function", [] {
    if (!cpu_device) cpu_device = new OpenDevice(DeviceTable::instance().open("cpu"));
    default_precision();  // which may be refused, and is known from now on
    return py::capsule(reinterpret_cast<void*>(&answer), "xla._CUSTOM_CALL_TARGET");
  });
  // The problem of the operation that `call` runs. It is not computed.
  m.def("problem_of", [](const py::function& call) {
    Captured captured;
    {
      CaptureScope scope(captured);
      call();
    }
    ConvProblem problem = captured.request.problem;
    problem.flip = captured.flip;
    return to_string(problem);
  });
}

}  // namespace vkconv::bindings
