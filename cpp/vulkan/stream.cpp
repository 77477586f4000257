#include "vulkan/stream.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <vector>

#include "core/checked.h"
#include "core/interruption.h"
#include "vulkan/logical_device.h"

namespace vkconv::vulkan {
namespace {

constexpr std::size_t kParamsChunkBytes = 64 << 10;
constexpr std::int64_t kParamsAlignmentBytes = 256;  // of their offset in a buffer: no device asks for more

}  // namespace

struct Stream::State {
  explicit State(std::shared_ptr<LogicalDevice> d) : device(std::move(d)), recorder(device->take_recorder()) {}

  std::shared_ptr<LogicalDevice> device;
  CommandRecorder recorder;
  std::size_t used_commands = 0;  // of recorder.buffers
  std::size_t used_params = 0;    // of recorder.params
  bool recording = false;
  bool ended = false;           // what was recorded waits for a submit that does not fail
  bool waits = true;            // the next command must see the effects of the earlier ones
  std::uint64_t recorded = 0;   // commands
  double seconds = 0;           // estimate of what is recorded and not submitted
  std::uint64_t submitted = 0;  // number of the last submit, 0 when nothing runs
  std::deque<Buffer> kept;
  std::size_t kept_bytes = 0;
  std::vector<PipelinePtr> pipelines;          // in use; each once in a row
  Buffer chunk;                                // of parameters, in the last of recorder.params used
  std::int64_t chunk_next = 0, chunk_end = 0;  // offsets in its VkBuffer

  const vk::raii::CommandBuffer& commands();
  const vk::raii::CommandBuffer& next_command();
  std::uint32_t write_params(std::span<const std::byte> params);
  void next_chunk();
  vk::Pipeline pipeline(const Kernel& kernel);
  std::uint64_t submit();
  void submit_in_turn();
  void end(const vk::raii::CommandBuffer& c);
};

// The command buffer being recorded.
const vk::raii::CommandBuffer& Stream::State::commands() {
  if (ended) submit();
  if (recording) return recorder.buffers[used_commands - 1];
  if (used_commands == recorder.buffers.size()) recorder.buffers.push_back(device->make_command_buffer(recorder));
  const vk::raii::CommandBuffer& made = recorder.buffers[used_commands];
  vulkan_call("record", [&] { made.begin({vk::CommandBufferUsageFlagBits::eOneTimeSubmit}); });
  ++used_commands;
  recording = true;
  return made;
}

// The same, behind a barrier when the next command waits. The barrier also covers earlier submits of the queue.
const vk::raii::CommandBuffer& Stream::State::next_command() {
  using Stage = vk::PipelineStageFlagBits;
  using Access = vk::AccessFlagBits;
  const vk::raii::CommandBuffer& c = commands();
  if (waits) {
    const vk::MemoryBarrier all(
        Access::eShaderWrite | Access::eTransferWrite | Access::eShaderRead | Access::eTransferRead,
        Access::eShaderRead | Access::eShaderWrite | Access::eTransferRead | Access::eTransferWrite);
    const auto stages = Stage::eComputeShader | Stage::eTransfer;
    c.pipelineBarrier(stages, stages, {}, all, {}, {});
  }
  waits = true;
  ++recorded;
  return c;
}

// Returns their offset in the chunk's VkBuffer.
std::uint32_t Stream::State::write_params(std::span<const std::byte> params) {
  constexpr auto kRange = static_cast<std::int64_t>(kMaxParamsBytes);  // a shader may read so much
  if (chunk_end - chunk_next < kRange) next_chunk();
  std::memcpy(chunk.mapped() + chunk.size_bytes() - (chunk_end - chunk_next), params.data(), params.size());
  const std::int64_t next = round_up(chunk_next + std::ssize(params), kParamsAlignmentBytes);
  return static_cast<std::uint32_t>(std::exchange(chunk_next, next));
}

void Stream::State::next_chunk() {
  if (used_params == recorder.params.size()) recorder.params.push_back(device->make_params_set());
  Buffer next = device->allocate(kParamsChunkBytes, MemoryKind::params);
  const BufferRange range = device->memory().find(next.pointer());
  device->set_params_buffer(recorder.params[used_params++], range.buffer);
  if (chunk.pointer()) kept.push_back(std::move(chunk));
  chunk = std::move(next);
  chunk_end = static_cast<std::int64_t>(range.offset + chunk.size_bytes());
  chunk_next = round_up(static_cast<std::int64_t>(range.offset), kParamsAlignmentBytes);
}

vk::Pipeline Stream::State::pipeline(const Kernel& kernel) {
  PipelinePtr p = device->pipeline(kernel);
  const vk::Pipeline handle = **p;
  if (pipelines.empty() || pipelines.back() != p) pipelines.push_back(std::move(p));
  return handle;
}

Stream::Stream(std::shared_ptr<LogicalDevice> device) : state_(std::make_unique<State>(std::move(device))) {}
Stream::Stream(Stream&&) noexcept = default;

Stream::~Stream() {
  if (!state_ || forked()) {
    (void)state_.release();  // the child of a fork abandons what its parent owns
    return;
  }
  State& s = *state_;
  try {
    if (s.submitted) s.device->wait(s.submitted);
  } catch (const std::exception&) {
    s.device->wait_idle();
  }
  s.device->give_recorder(std::move(s.recorder));
}

void Stream::dispatch_bytes(const Kernel& kernel, std::span<const std::byte> params, Groups groups, double seconds) {
  if (groups[0] == 0 || groups[1] == 0 || groups[2] == 0) return;
  State& s = *state_;
  const vk::Pipeline pipeline = s.pipeline(kernel);
  const std::uint32_t params_offset = s.write_params(params);
  const vk::DescriptorSet params_set = *s.recorder.params[s.used_params - 1].set;
  const vk::PipelineLayout layout = s.device->pipeline_layout();
  const PushConstants push{groups[0], groups[1]};
  // Parts along the longest axis, of equal estimated time, independent of each other.
  const int axis = static_cast<int>(std::max_element(groups.begin(), groups.end()) - groups.begin());
  const auto parts = static_cast<std::uint32_t>(std::clamp(seconds / kSubmitSeconds + 1, 1.0, double(groups[axis])));
  const std::uint32_t step = (groups[axis] + parts - 1) / parts;
  for (std::uint64_t first = 0; first < groups[axis]; first += step) {
    if (s.seconds > 0 && s.seconds + seconds / parts > kSubmitSeconds) s.submit_in_turn();
    s.seconds += seconds / parts;
    Groups base{0, 0, 0}, count = groups;
    base[axis] = static_cast<std::uint32_t>(first);
    count[axis] = std::min(step, groups[axis] - base[axis]);
    if (first > 0) s.waits = false;
    const vk::raii::CommandBuffer& c = s.next_command();
    c.bindPipeline(vk::PipelineBindPoint::eCompute, pipeline);
    c.bindDescriptorSets(vk::PipelineBindPoint::eCompute, layout, 0, params_set, params_offset);
    c.pushConstants<PushConstants>(layout, vk::ShaderStageFlagBits::eCompute, 0, push);
    c.dispatchBase(base[0], base[1], base[2], count[0], count[1], count[2]);
  }
}

Groups Stream::linear_groups(std::int64_t count) const {
  const auto& limit = traits().limits.workgroup_count;
  if (count <= limit[0]) return {static_cast<std::uint32_t>(count), 1, 1};
  const std::int64_t rows = ceil_div(count, limit[0]);
  if (rows > limit[1]) throw DeviceError("a dispatch of " + std::to_string(count) + " workgroups is too large");
  return {static_cast<std::uint32_t>(ceil_div(count, rows)), static_cast<std::uint32_t>(rows), 1};
}

void Stream::wait_before_next(bool waits) { state_->waits = waits; }
std::uint64_t Stream::recorded() const { return state_->recorded; }
double Stream::unsubmitted_seconds() const { return state_->seconds; }
std::size_t Stream::kept_bytes() const { return state_->kept_bytes; }

void Stream::copy(Pointer to, Pointer from, std::size_t bytes) {
  if (bytes == 0) return;
  State& s = *state_;
  const BufferRange source = s.device->memory().find(from), target = s.device->memory().find(to);
  const vk::BufferCopy region(source.offset, target.offset, bytes);
  s.next_command().copyBuffer(source.buffer, target.buffer, region);
}

void Stream::fill(Pointer to, std::size_t bytes, std::uint32_t value) {
  if (bytes == 0) return;
  State& s = *state_;
  const BufferRange target = s.device->memory().find(to);
  s.next_command().fillBuffer(target.buffer, target.offset, bytes, value);
}

Buffer Stream::allocate(std::size_t bytes) { return allocate(bytes, MemoryKind::device); }
Buffer Stream::allocate(std::size_t bytes, MemoryKind kind) { return state_->device->allocate(bytes, kind); }
const Buffer& Stream::keep(Buffer buffer) {
  state_->kept_bytes += buffer.size_bytes();
  return state_->kept.emplace_back(std::move(buffer));
}

std::uint64_t Stream::submit() { return state_->submit(); }

std::uint64_t Stream::State::submit() {
  if (!recording) return submitted;
  const vk::raii::CommandBuffer& c = recorder.buffers[used_commands - 1];
  if (!ended) end(c);
  submitted = device->submit(*c);
  recording = ended = false;
  seconds = 0;
  return submitted;
}

void Stream::State::submit_in_turn() {
  const std::uint64_t last = submitted;
  submit();
  if (last > 0 && interruptible()) device->wait_interruptibly(last);
}

void Stream::State::end(const vk::raii::CommandBuffer& c) {
  const vk::MemoryBarrier to_host(vk::AccessFlagBits::eShaderWrite | vk::AccessFlagBits::eTransferWrite,
                                  vk::AccessFlagBits::eHostRead);
  c.pipelineBarrier(vk::PipelineStageFlagBits::eComputeShader | vk::PipelineStageFlagBits::eTransfer,
                    vk::PipelineStageFlagBits::eHost, {}, to_host, {}, {});
  try {
    vulkan_call("record", [&] { c.end(); });
  } catch (const Error&) {  // the commands are gone, and with them results that earlier calls have promised
    device->set_lost();
    throw;
  }
  ended = true;
}

void Stream::wait_for(std::uint64_t number) { state_->device->wait_interruptibly(number); }

void Stream::wait() {
  submit();
  State& s = *state_;
  if (!s.submitted) return;
  s.device->wait_interruptibly(s.submitted);
  s.submitted = 0;
  s.kept.clear();
  s.kept_bytes = 0;
  s.pipelines.clear();
  s.chunk = {};
  s.chunk_next = s.chunk_end = 0;
  s.used_commands = s.used_params = 0;
  vulkan_call("record", [&] { s.recorder.pool.reset(); });
}

// A timestamp at the bottom of the pipe is taken when everything before it is done.
void Stream::start_timer() {
  State& s = *state_;
  if (traits().timestamp_seconds == 0) return;
  if (!*s.recorder.timestamps) s.recorder.timestamps = s.device->make_timestamps();
  const vk::raii::CommandBuffer& c = s.commands();
  c.resetQueryPool(*s.recorder.timestamps, 0, 2);
  c.writeTimestamp(vk::PipelineStageFlagBits::eBottomOfPipe, *s.recorder.timestamps, 0);
  s.waits = true;
}

void Stream::stop_timer() {
  State& s = *state_;
  if (traits().timestamp_seconds == 0) return;
  s.commands().writeTimestamp(vk::PipelineStageFlagBits::eBottomOfPipe, *s.recorder.timestamps, 1);
}

double Stream::timed_seconds() const {
  State& s = *state_;
  if (traits().timestamp_seconds == 0) return 0;
  return s.device->seconds_between(s.recorder.timestamps);
}

const Traits& Stream::traits() const { return state_->device->traits(); }
LogicalDevice& Stream::device() const { return *state_->device; }

}  // namespace vkconv::vulkan
