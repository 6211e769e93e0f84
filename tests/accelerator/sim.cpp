// A simulated accelerator: device type "sim", registered as PyTorch's PrivateUse1 backend. See README.md in this folder.
//
// A tensor on the device has an address inside a range that the host may neither read nor write (PROT_NONE). The bytes
// lie elsewhere, in a Block; only operators that run on the device get at them. An operator runs by lending each of its
// arguments to PyTorch's CPU kernel as a CPU tensor on the block's bytes, and taking the answers back.

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/RedispatchFunctions.h>
#include <ATen/autocast_mode.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/set_cpu_dispatch.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/extension.h>
#include <torch/library.h>

#include <sys/mman.h>

#include <atomic>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <unordered_map>
#include <unordered_set>

namespace sim {

using at::Tensor;
using c10::Device;
using c10::DeviceIndex;
using c10::DispatchKey;
using c10::DispatchKeySet;
using c10::IValue;
using c10::Storage;

constexpr auto kSim = c10::DeviceType::PrivateUse1;
constexpr DeviceIndex kMostDevices = 8;
constexpr DispatchKeySet kCpuKeys{DispatchKey::CPU};
constexpr uint64_t kSeedMask = 0x5eed;  // the device draws other numbers than the CPU from the same seed, as a GPU does

// ---- counters -------------------------------------------------------------------------------------------------------

struct Counters {
  std::atomic<int64_t> operators{0}, host_reads{0}, copies_to_device{0}, copies_from_device{0}, copies_between{0},
      blocking_copies{0}, synchronizations{0};
};

Counters counters;
std::atomic<bool> forbids_waiting{false};

// Count something for which the host waits for the device. Where that is forbidden, raise, so that a traceback names it.
void count_wait(std::atomic<int64_t>& counter, const std::string& what) {
  counter++;
  TORCH_CHECK(!forbids_waiting, "the host waits for the device here: ", what);
}

// ---- devices --------------------------------------------------------------------------------------------------------

DeviceIndex num_devices = 2;
thread_local DeviceIndex current_device = 0;

void check_index(DeviceIndex index) {
  TORCH_CHECK(index >= 0 && index < num_devices, "sim: invalid device ordinal ", int(index), " of ", int(num_devices));
}

// A copy between host and device that has been issued and has not happened yet.
struct PendingCopy {
  bool is_to_device;
  std::function<void()> run;
};

// The stream of a device. Operators run when they are issued; copies that need not block happen late, in order: those to
// the device when the next operator starts there, those to the host when somebody synchronises.
struct Stream {
  std::recursive_mutex mutex;
  std::deque<PendingCopy> pending;
  uint64_t num_issued = 0, num_done = 0;

  void issue(PendingCopy copy) {
    std::lock_guard lock(mutex);
    pending.push_back(std::move(copy));
    num_issued++;
  }
  void run_first(size_t count) {
    for (; count > 0; count--) {
      auto copy = std::move(pending.front());
      pending.pop_front();
      num_done++;
      copy.run();
    }
  }
  void before_operator() {
    std::lock_guard lock(mutex);
    size_t count = pending.size();
    while (count > 0 && !pending[count - 1].is_to_device) count--;
    run_first(count);
  }
  void finish() {
    std::lock_guard lock(mutex);
    run_first(pending.size());
  }
};

Stream streams[kMostDevices];

void synchronize(DeviceIndex index) {
  check_index(index);
  counters.synchronizations++;
  streams[index].finish();
}

// ---- memory ---------------------------------------------------------------------------------------------------------

struct Block {
  char* address;  // as the host sees it; not to be read
  size_t address_bytes, nbytes;
  c10::DataPtr bytes;
  DeviceIndex device;
};

// Hands out addresses that nobody may read, and takes them back.
class Addresses {
 public:
  char* take(size_t nbytes) {
    auto& free = free_[nbytes];
    if (!free.empty()) {
      char* address = free.back();
      free.pop_back();
      return address;
    }
    if (left_ < nbytes) {
      left_ = std::max(nbytes, size_t(1) << 32);
      void* range = mmap(nullptr, left_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      TORCH_CHECK(range != MAP_FAILED, "sim: no addresses left");
      next_ = static_cast<char*>(range);
    }
    char* address = next_;
    next_ += nbytes, left_ -= nbytes;
    return address;
  }
  void give_back(char* address, size_t nbytes) { free_[nbytes].push_back(address); }

 private:
  std::unordered_map<size_t, std::vector<char*>> free_;
  char* next_ = nullptr;
  size_t left_ = 0;
};

void free_block(void* context);

class Memory final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t nbytes) override {
    auto bytes = c10::GetCPUAllocator()->allocate(nbytes);
    if (nbytes > 0) std::memset(bytes.get(), 0xff, nbytes);  // NaN: nobody may count on fresh memory
    return adopt(std::move(bytes), nbytes, current_device);
  }

  // Make bytes memory of a device.
  c10::DataPtr adopt(c10::DataPtr bytes, size_t nbytes, DeviceIndex device) {
    std::lock_guard lock(mutex_);
    is_used_[device] = true;
    if (nbytes == 0) return {nullptr, Device(kSim, device)};
    size_t& used = used_[device];
    if (used + nbytes > limits[device]) {
      num_ooms_[device]++;
      TORCH_CHECK_WITH(OutOfMemoryError, false, "sim out of memory. Tried to allocate ", nbytes, " bytes on device ",
                       int(device), ", which has ", limits[device], " bytes, of which ", used, " are in use");
    }
    used += nbytes;
    peaks_[device] = std::max(peaks_[device], used);
    size_t rounded = 512;
    while (rounded < nbytes) rounded *= 2;
    auto* block = new Block{addresses_.take(rounded), rounded, nbytes, std::move(bytes), device};
    blocks_[block->address] = block;
    return {block->address, block, &free_block, Device(kSim, device)};
  }

  void free(Block* block) {
    std::lock_guard lock(mutex_);
    used_[block->device] -= block->nbytes;
    blocks_.erase(block->address);
    addresses_.give_back(block->address, block->address_bytes);
    delete block;
  }

  Block* find(const void* pointer) {
    std::lock_guard lock(mutex_);
    auto after = blocks_.upper_bound(static_cast<const char*>(pointer));
    if (after == blocks_.begin()) return nullptr;
    Block* block = std::prev(after)->second;
    return static_cast<const char*>(pointer) < block->address + block->nbytes ? block : nullptr;
  }

  c10::DeleterFnPtr raw_deleter() const override { return &free_block; }
  void copy_data(void* target, const void* source, size_t count) const override {
    auto* self = const_cast<Memory*>(this);
    auto bytes = [&](const void* at) {
      Block* block = self->find(at);
      return static_cast<char*>(block->bytes.get()) + (static_cast<const char*>(at) - block->address);
    };
    if (count > 0) std::memcpy(bytes(target), bytes(source), count);
  }

  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {}
  void recordStream(const c10::DataPtr&, c10::Stream) override {}
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(DeviceIndex device) override {
    check_index(device);
    std::lock_guard lock(mutex_);
    c10::CachingDeviceAllocator::DeviceStats stats;
    for (auto* array : {&stats.allocated_bytes, &stats.reserved_bytes, &stats.active_bytes, &stats.requested_bytes}) {
      auto& all = (*array)[0];
      all.current = used_[device];
      all.peak = peaks_[device];
    }
    stats.num_ooms = num_ooms_[device];
    return stats;
  }
  void resetAccumulatedStats(DeviceIndex) override {}
  void resetPeakStats(DeviceIndex device) override {
    std::lock_guard lock(mutex_);
    peaks_[device] = used_[device];
  }
  std::pair<size_t, size_t> getMemoryInfo(DeviceIndex device) override {
    check_index(device);
    std::lock_guard lock(mutex_);
    return {limits[device] - std::min(used_[device], limits[device]), limits[device]};
  }
  bool is_used(DeviceIndex device) const { return is_used_[device]; }

  size_t limits[kMostDevices];

 private:
  std::mutex mutex_;
  Addresses addresses_;
  std::map<const char*, Block*> blocks_;
  size_t used_[kMostDevices] = {}, peaks_[kMostDevices] = {};
  int64_t num_ooms_[kMostDevices] = {};
  bool is_used_[kMostDevices] = {};
};

Memory& memory() {
  static auto* the_memory = new Memory();  // outlives every tensor
  return *the_memory;
}

void free_block(void* context) {
  memory().free(static_cast<Block*>(context));
}

struct PinnedMemory final : public c10::Allocator {
  c10::DataPtr allocate(size_t nbytes) override {
    void* bytes = nullptr;
    TORCH_CHECK(posix_memalign(&bytes, 64, std::max(nbytes, size_t(1))) == 0, "sim: no host memory left");
    std::lock_guard lock(mutex);
    ranges[static_cast<char*>(bytes)] = nbytes;
    return {bytes, bytes, &free_pinned, Device(c10::kCPU)};
  }
  static void free_pinned(void* bytes);
  c10::DeleterFnPtr raw_deleter() const override { return &free_pinned; }
  void copy_data(void* target, const void* source, size_t count) const override { std::memcpy(target, source, count); }
  bool holds(const void* pointer) {
    std::lock_guard lock(mutex);
    auto after = ranges.upper_bound(static_cast<const char*>(pointer));
    return after != ranges.begin() && pointer < std::prev(after)->first + std::prev(after)->second;
  }
  std::mutex mutex;
  std::map<const char*, size_t> ranges;
};

PinnedMemory& pinned_memory() {
  static auto* the_memory = new PinnedMemory();
  return *the_memory;
}

void PinnedMemory::free_pinned(void* bytes) {
  auto& self = pinned_memory();
  std::lock_guard lock(self.mutex);
  self.ranges.erase(static_cast<char*>(bytes));
  std::free(bytes);
}

// ---- generators -----------------------------------------------------------------------------------------------------

struct SimGenerator final : public c10::GeneratorImpl {
  explicit SimGenerator(DeviceIndex index)
      : GeneratorImpl(Device(kSim, index), DispatchKeySet(DispatchKey::PrivateUse1)),
        inner(at::detail::createCPUGenerator()) {
    set_current_seed(c10::detail::getNonDeterministicRandom());
  }
  void set_current_seed(uint64_t seed) override { inner.set_current_seed(seed ^ kSeedMask); }
  uint64_t current_seed() const override { return inner.current_seed() ^ kSeedMask; }
  uint64_t seed() override {
    set_current_seed(c10::detail::getNonDeterministicRandom());
    return current_seed();
  }
  void set_offset(uint64_t) override { TORCH_CHECK(false, "sim: generators have no offset"); }
  uint64_t get_offset() const override { TORCH_CHECK(false, "sim: generators have no offset"); }
  void set_state(const c10::TensorImpl& state) override { inner.unsafeGetGeneratorImpl()->set_state(state); }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    return inner.unsafeGetGeneratorImpl()->get_state();
  }
  SimGenerator* clone_impl() const override {
    auto* copy = new SimGenerator(device().index());
    copy->set_state(*get_state());
    return copy;
  }
  at::Generator inner;
};

at::Generator& default_generator(DeviceIndex index) {
  static auto* generators = [] {
    auto* all = new std::vector<at::Generator>();
    for (DeviceIndex device = 0; device < num_devices; device++)
      all->push_back(at::make_generator<SimGenerator>(device));
    return all;
  }();
  check_index(index);
  return (*generators)[index];
}

// ---- what PyTorch asks of a backend -----------------------------------------------------------------------------------

struct Guard final : public c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kSim; }
  Device exchangeDevice(Device device) const override {
    Device before = getDevice();
    setDevice(device);
    return before;
  }
  Device getDevice() const override { return Device(kSim, current_device); }
  void setDevice(Device device) const override {
    check_index(device.index());
    current_device = device.index();
  }
  void uncheckedSetDevice(Device device) const noexcept override { current_device = device.index(); }
  c10::Stream getStream(Device device) const override {
    return c10::Stream(c10::Stream::DEFAULT, device.has_index() ? device : getDevice());
  }
  c10::Stream getDefaultStream(Device device) const override { return getStream(device); }
  c10::Stream getNewStream(Device device, int) const override { return getStream(device); }
  c10::Stream getStreamFromGlobalPool(Device device, bool) const override { return getStream(device); }
  c10::Stream exchangeStream(c10::Stream stream) const override { return stream; }
  DeviceIndex deviceCount() const noexcept override { return num_devices; }

  // An event is a number of copies that must have happened.
  struct Event {
    DeviceIndex device;
    uint64_t num_copies;
  };
  void record(void** event, const c10::Stream& stream, const DeviceIndex, const c10::EventFlag) const override {
    if (*event == nullptr) *event = new Event();
    auto& the_stream = streams[stream.device_index()];
    std::lock_guard lock(the_stream.mutex);
    *static_cast<Event*>(*event) = {stream.device_index(), the_stream.num_issued};
  }
  void destroyEvent(void* event, const DeviceIndex) const noexcept override { delete static_cast<Event*>(event); }
  void block(void*, const c10::Stream&) const override {}  // a device has one stream, and operators run when issued
  bool queryEvent(void* event) const override {
    if (event == nullptr) return true;
    auto* the_event = static_cast<Event*>(event);
    std::lock_guard lock(streams[the_event->device].mutex);
    return streams[the_event->device].num_done >= the_event->num_copies;
  }
  void synchronizeEvent(void* event) const override {
    if (event != nullptr) synchronize(static_cast<Event*>(event)->device);
  }
  bool queryStream(const c10::Stream& stream) const override {
    std::lock_guard lock(streams[stream.device_index()].mutex);
    return streams[stream.device_index()].pending.empty();
  }
  void synchronizeStream(const c10::Stream& stream) const override { synchronize(stream.device_index()); }
  void synchronizeDevice(const DeviceIndex index) const override { synchronize(index); }
  void recordDataPtrOnStream(const c10::DataPtr&, const c10::Stream&) const override {}
};

struct Hooks final : public at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return num_devices > 0; }
  bool hasPrimaryContext(DeviceIndex index) const override { return memory().is_used(index); }
  DeviceIndex deviceCount() const override { return num_devices; }
  void setCurrentDevice(DeviceIndex index) const override {
    check_index(index);
    current_device = index;
  }
  DeviceIndex getCurrentDevice() const override { return current_device; }
  DeviceIndex exchangeDevice(DeviceIndex index) const override { return std::exchange(current_device, index); }
  DeviceIndex maybeExchangeDevice(DeviceIndex index) const override { return exchangeDevice(index); }
  const at::Generator& getDefaultGenerator(DeviceIndex index) const override {
    return default_generator(index < 0 ? current_device : index);
  }
  at::Generator getNewGenerator(DeviceIndex index) const override {
    return at::make_generator<SimGenerator>(index < 0 ? current_device : index);
  }
  Device getDeviceFromPtr(void* pointer) const override {
    Block* block = memory().find(pointer);
    TORCH_CHECK(block != nullptr, "sim: no device has this address");
    return Device(kSim, block->device);
  }
  bool isPinnedPtr(const void* pointer) const override { return pinned_memory().holds(pointer); }
  c10::Allocator* getPinnedMemoryAllocator() const override { return &pinned_memory(); }
  void resizePrivateUse1Bytes(const Storage& storage, size_t nbytes) const override;
};

// ---- operators ------------------------------------------------------------------------------------------------------

void* bytes_of(const Storage& storage) {
  auto* block = static_cast<Block*>(storage.data_ptr().get_context());
  return block == nullptr ? nullptr : block->bytes.get();
}

Tensor make_tensor(const Storage& storage, DispatchKey key, const Tensor& like) {
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(Storage(storage), DispatchKeySet(key), like.dtype());
  auto* impl = tensor.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(like.sizes(), like.strides());
  impl->set_storage_offset(like.storage_offset());
  if (like.unsafeGetTensorImpl()->is_wrapped_number()) impl->set_wrapped_number(true);
  if (like.is_conj()) impl->_set_conj(true);
  if (like.is_neg()) impl->_set_neg(true);
  return tensor;
}

// Move what a CPU tensor grew to into the memory of a device.
void replace_bytes(const Storage& target, const Storage& source) {
  auto index = target.device().index();
  auto nbytes = source.nbytes();
  auto bytes = c10::GetCPUAllocator()->allocate(nbytes);
  if (nbytes > 0) std::memcpy(bytes.get(), source.data(), nbytes);
  auto* impl = target.unsafeGetStorageImpl();
  impl->set_data_ptr_noswap(memory().adopt(std::move(bytes), nbytes, index));
  impl->set_nbytes(nbytes);
}

// The tensors of one call of an operator, lent to a CPU kernel.
class Loan {
 public:
  Tensor lend(const Tensor& tensor) {
    if (!tensor.defined()) return tensor;
    if (tensor.device().type() != kSim) {
      if (tensor.device().is_cpu()) host_storages_.insert(tensor.storage().unsafeGetStorageImpl());
      return tensor;
    }
    for (auto& [ours, lent] : tensors_)
      if (ours.is_same(tensor)) return lent;
    auto& storage = storages_[tensor.storage().unsafeGetStorageImpl()];
    if (!storage) {
      auto ours = tensor.storage();
      storage = c10::make_intrusive<c10::StorageImpl>(
          c10::StorageImpl::use_byte_size_t(), ours.nbytes(), c10::DataPtr(bytes_of(ours), Device(c10::kCPU)),
          c10::GetCPUAllocator(), true);
      lent_[storage.unsafeGetStorageImpl()] = ours;
    }
    tensors_.emplace_back(tensor, make_tensor(storage, DispatchKey::CPU, tensor));
    return tensors_.back().second;
  }

  Tensor take_back(const Tensor& answer, DeviceIndex device) {
    if (!answer.defined()) return answer;
    for (auto& [ours, lent] : tensors_)
      if (lent.is_same(answer)) return ours;
    auto* impl = answer.storage().unsafeGetStorageImpl();
    auto& storage = lent_[impl];
    if (!storage) {
      auto nbytes = answer.storage().nbytes();
      c10::DataPtr bytes;
      if (host_storages_.count(impl) || !answer.storage().data_ptr().get_context()) {  // belongs to somebody else
        bytes = c10::GetCPUAllocator()->allocate(nbytes);
        if (nbytes > 0) std::memcpy(bytes.get(), answer.storage().data(), nbytes);
      } else {
        bytes = impl->set_data_ptr(c10::DataPtr(nullptr, Device(c10::kCPU)));
      }
      storage = c10::make_intrusive<c10::StorageImpl>(
          c10::StorageImpl::use_byte_size_t(), nbytes, memory().adopt(std::move(bytes), nbytes, device), &memory(),
          true);
      kept_.push_back(answer);
    }
    return make_tensor(storage, DispatchKey::PrivateUse1, answer);
  }

  // Give our tensors the shapes and the memory that a kernel has given those that were lent.
  void settle() {
    for (auto& [ours, lent] : tensors_) {
      auto storage = ours.storage();
      if (lent.storage().data() != bytes_of(storage) && lent.storage().nbytes() > 0)
        replace_bytes(storage, lent.storage());
      if (lent.sizes() != ours.sizes() || lent.strides() != ours.strides())
        ours.unsafeGetTensorImpl()->set_sizes_and_strides(lent.sizes(), lent.strides());
    }
  }

 private:
  std::deque<std::pair<Tensor, Tensor>> tensors_;
  std::unordered_map<c10::StorageImpl*, Storage> storages_;
  std::unordered_map<c10::StorageImpl*, Storage> lent_;
  std::unordered_set<c10::StorageImpl*> host_storages_;
  std::vector<Tensor> kept_;
};

template <typename Function>
void for_each_tensor(const IValue& value, Function function) {
  if (value.isTensor()) {
    function(value.toTensor());
  } else if (value.isTensorList()) {
    for (const Tensor& tensor : value.toTensorList()) function(tensor);
  } else if (value.isOptionalTensorList()) {
    for (std::optional<Tensor> tensor : value.toOptionalTensorList())
      if (tensor.has_value()) function(*tensor);
  }
}

template <typename Function>
IValue map_tensors(const IValue& value, Function function) {
  if (value.isTensor()) return function(value.toTensor());
  if (value.isTensorList()) {
    c10::List<Tensor> tensors;
    for (const Tensor& tensor : value.toTensorList()) tensors.push_back(function(tensor));
    return tensors;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<Tensor>> tensors;
    for (std::optional<Tensor> tensor : value.toOptionalTensorList())
      tensors.push_back(tensor.has_value() ? std::optional(function(*tensor)) : std::nullopt);
    return tensors;
  }
  return value;
}

bool is_indexing(const std::string& name) {
  return name == "aten::index" || name == "aten::index_put_" || name == "aten::index_put" ||
      name == "aten::_index_put_impl_" || name == "aten::_unsafe_index" || name == "aten::_unsafe_index_put";
}

// Find the device of a call, and refuse what an accelerator refuses: tensors of two devices, but for numbers of the host.
DeviceIndex find_device(const std::string& name, at::ArrayRef<IValue> arguments) {
  std::optional<Device> device;
  std::optional<Device> other;
  for (const auto& argument : arguments) {
    if (argument.isDevice() && argument.toDevice().type() == kSim) device = argument.toDevice();
    for_each_tensor(argument, [&](const Tensor& tensor) {
      if (!tensor.defined()) return;
      if (tensor.device().type() == kSim) {
        if (!device)
          device = tensor.device();
        else if (*device != tensor.device())
          other = tensor.device();
      } else if (tensor.device().is_cpu() && tensor.dim() > 0) {
        if (is_indexing(name) && argument.isOptionalTensorList()) {  // indices may lie on the host, and are copied
          counters.copies_to_device++;
          count_wait(counters.blocking_copies, "indices of the host");
        } else {
          other = tensor.device();
        }
      }
    });
  }
  if (!device || !device->has_index()) return current_device;
  TORCH_CHECK(!other, "Expected all tensors to be on the same device, but found at least two devices, ", *device,
              " and ", *other, "! (when checking arguments of ", name, ")");
  return device->index();
}

// Whether an accelerator's kernel would read from the device to know its answer or the shape of it.
bool reads_values(const std::string& name, at::ArrayRef<IValue> arguments) {
  static const std::unordered_set<std::string> readers{
      "aten::_local_scalar_dense", "aten::equal",      "aten::nonzero",         "aten::masked_select",
      "aten::_unique",             "aten::_unique2",   "aten::unique_dim",      "aten::unique_consecutive",
      "aten::bincount",            "aten::unique_dim_consecutive"};
  if (readers.count(name)) return true;
  if (name == "aten::repeat_interleave") return arguments[0].isTensor() && arguments.back().isNone();
  if (!is_indexing(name)) return false;
  if (arguments.size() > 2 && arguments[2].isTensor() && arguments[2].toTensor().numel() == 1) return false;  // a fill
  bool has_mask = false;
  for_each_tensor(arguments[1], [&](const Tensor& index) {
    has_mask |= index.defined() && (index.scalar_type() == at::kBool || index.scalar_type() == at::kByte);
  });
  return has_mask;
}

// Give a call the generator of its device, and put the CPU's own back for kernels that ask for none.
class Draws {
 public:
  Draws(const c10::OperatorHandle& op, torch::jit::Stack* stack, size_t begin, DeviceIndex device) {
    if (!op.hasTag(at::Tag::nondeterministic_seeded)) return;
    auto* generator = static_cast<SimGenerator*>(default_generator(device).unsafeGetGeneratorImpl());
    const auto& arguments = op.schema().arguments();
    for (size_t place = 0; place < arguments.size(); place++) {
      auto type = arguments[place].type();
      if (auto optional = type->cast<c10::OptionalType>()) type = optional->getElementType();
      if (type->kind() != c10::TypeKind::GeneratorType) continue;
      auto& value = (*stack)[begin + place];
      if (value.isGenerator()) {
        TORCH_CHECK(value.toGenerator().device().type() == kSim, "Expected a 'sim' device type for generator but found '",
                    value.toGenerator().device(), "'");
        TORCH_CHECK(value.toGenerator().device().index() == device, "Expected a generator of sim:", int(device),
                    " but found one of ", value.toGenerator().device());
        generator = static_cast<SimGenerator*>(value.toGenerator().unsafeGetGeneratorImpl());
      }
      value = generator->inner;
      return;
    }
    swapped_ = generator;
    lock_ = std::unique_lock(swap_mutex);
    cpu_state_ = at::detail::getDefaultCPUGenerator().get_state();
    at::Generator cpu = at::detail::getDefaultCPUGenerator();
    cpu.set_state(swapped_->inner.get_state());
  }
  ~Draws() {
    if (swapped_ == nullptr) return;
    at::Generator cpu = at::detail::getDefaultCPUGenerator();
    swapped_->inner.set_state(cpu.get_state());
    cpu.set_state(cpu_state_);
  }
  Draws(const Draws&) = delete;

 private:
  static inline std::mutex swap_mutex;
  SimGenerator* swapped_ = nullptr;
  std::unique_lock<std::mutex> lock_;
  Tensor cpu_state_;
};

// Run an operator on the device: lend its tensors to the CPU kernel.
void run_operator(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  const auto& schema = op.schema();
  const auto& name = schema.name();
  size_t num_arguments = schema.arguments().size(), begin = stack->size() - num_arguments;
  auto arguments = at::ArrayRef<IValue>(*stack).slice(begin);
  DeviceIndex device = find_device(name, arguments);
  counters.operators++;
  streams[device].before_operator();
  if (reads_values(name, arguments)) {
    count_wait(counters.host_reads, name);
    streams[device].finish();
  }
  Draws draws(op, stack, begin, device);
  Loan loan;
  for (size_t place = begin; place < stack->size(); place++) {
    auto& value = (*stack)[place];
    if (value.isDevice() && value.toDevice().type() == kSim)
      value = Device(c10::kCPU);
    else
      value = map_tensors(value, [&](const Tensor& tensor) { return loan.lend(tensor); });
  }
  op.redispatchBoxed(kCpuKeys, stack);
  loan.settle();
  for (size_t place = stack->size() - schema.returns().size(); place < stack->size(); place++)
    (*stack)[place] =
        map_tensors((*stack)[place], [&](const Tensor& tensor) { return loan.take_back(tensor, device); });
}

Tensor empty(c10::SymIntArrayRef sizes, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
             std::optional<Device> device, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  c10::OptionalDeviceGuard guard(device);
  return at::detail::empty_generic(C10_AS_INTARRAYREF_SLOW(sizes), &memory(), DispatchKeySet(DispatchKey::PrivateUse1),
                                   c10::dtype_or_default(dtype), format);
}

Tensor empty_strided(c10::SymIntArrayRef sizes, c10::SymIntArrayRef strides, std::optional<at::ScalarType> dtype,
                     std::optional<at::Layout>, std::optional<Device> device, std::optional<bool>) {
  c10::OptionalDeviceGuard guard(device);
  return at::detail::empty_strided_generic(C10_AS_INTARRAYREF_SLOW(sizes), C10_AS_INTARRAYREF_SLOW(strides), &memory(),
                                           DispatchKeySet(DispatchKey::PrivateUse1), c10::dtype_or_default(dtype));
}

void grow(const Storage& storage, size_t nbytes) {
  if (nbytes <= storage.nbytes()) return;
  auto bytes = c10::GetCPUAllocator()->allocate(nbytes);
  if (storage.nbytes() > 0) std::memcpy(bytes.get(), bytes_of(storage), storage.nbytes());
  auto* impl = storage.unsafeGetStorageImpl();
  impl->set_data_ptr_noswap(memory().adopt(std::move(bytes), nbytes, storage.device().index()));
  impl->set_nbytes(nbytes);
}

void Hooks::resizePrivateUse1Bytes(const Storage& storage, size_t nbytes) const {
  if (nbytes > storage.nbytes()) return grow(storage, nbytes);
  auto bytes = c10::GetCPUAllocator()->allocate(nbytes);
  if (nbytes > 0) std::memcpy(bytes.get(), bytes_of(storage), nbytes);
  auto* impl = storage.unsafeGetStorageImpl();
  impl->set_data_ptr_noswap(memory().adopt(std::move(bytes), nbytes, storage.device().index()));
  impl->set_nbytes(nbytes);
}

const Tensor& resize_(const Tensor& self, c10::SymIntArrayRef sizes, std::optional<at::MemoryFormat> format) {
  auto* impl = self.unsafeGetTensorImpl();
  impl->set_sizes_contiguous(C10_AS_INTARRAYREF_SLOW(sizes));
  grow(self.storage(), (self.storage_offset() + self.numel()) * self.itemsize());
  if (format && *format != at::MemoryFormat::Preserve) impl->empty_tensor_restride(*format);
  return self;
}

Tensor& set_storage(Tensor& self, Storage source, c10::SymInt offset, c10::SymIntArrayRef sizes,
                    c10::SymIntArrayRef strides) {
  auto the_sizes = C10_AS_INTARRAYREF_SLOW(sizes), the_strides = C10_AS_INTARRAYREF_SLOW(strides);
  std::vector<int64_t> contiguous;
  if (the_strides.empty() && !the_sizes.empty()) {
    contiguous.resize(the_sizes.size());
    for (int64_t dim = int64_t(the_sizes.size()) - 1, step = 1; dim >= 0; step *= std::max<int64_t>(the_sizes[dim--], 1))
      contiguous[dim] = step;
    the_strides = contiguous;
  }
  auto needed = at::detail::computeStorageNbytes(the_sizes, the_strides, self.itemsize(), offset.expect_int());
  grow(source, needed);
  auto* impl = self.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(std::move(source));
  impl->set_storage_offset(offset.expect_int());
  impl->set_sizes_and_strides(the_sizes, the_strides);
  return self;
}

Tensor& set_whole_storage(Tensor& self, Storage source) {
  c10::SymInt count(int64_t(source.nbytes() / self.itemsize()));
  return set_storage(self, std::move(source), 0, {count}, {c10::SymInt(1)});
}

Tensor& set_tensor(Tensor& self, const Tensor& source) {
  return set_storage(self, source.storage(), source.sym_storage_offset(), source.sym_sizes(), source.sym_strides());
}

void copy_on_host(const Tensor& target, const Tensor& source) {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  Tensor the_target = target;
  at::redispatch::copy_(kCpuKeys, the_target, source, false);
}

Tensor copy_from(const Tensor& source, const Tensor& target, bool non_blocking) {
  auto loan = std::make_shared<Loan>();
  Tensor lent_source = loan->lend(source), lent_target = loan->lend(target);
  if (source.device().type() != kSim) {
    auto& stream = streams[target.device().index()];
    counters.copies_to_device++;
    if (source.numel() == 0) return target;
    if (non_blocking && pinned_memory().holds(source.const_data_ptr())) {
      stream.issue({true, [loan, source, lent_target] { copy_on_host(lent_target, source); }});
      return target;
    }
    count_wait(counters.blocking_copies, "a copy to the device");
    stream.finish();
    copy_on_host(lent_target, source);
    return target;
  }
  auto& stream = streams[source.device().index()];
  stream.before_operator();
  if (target.device().type() == kSim) {
    (source.device() == target.device() ? counters.operators : counters.copies_between)++;
    streams[target.device().index()].before_operator();
    copy_on_host(lent_target, lent_source);
    return target;
  }
  counters.copies_from_device++;
  if (non_blocking) {
    Tensor values = at::redispatch::clone(kCpuKeys, lent_source);
    stream.issue({false, [values, target] { copy_on_host(target, values); }});
    return target;
  }
  count_wait(counters.blocking_copies, "a copy from the device");
  stream.finish();
  copy_on_host(target, lent_source);
  return target;
}

Tensor copy_from_and_resize(const Tensor& source, const Tensor& target) {
  target.resize_(source.sizes());
  return copy_from(source, target, false);
}

// Operators that PyTorch has for accelerators only: run the CPU's counterpart.
Tensor convolve(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias,
                c10::SymIntArrayRef stride, c10::SymIntArrayRef padding, c10::SymIntArrayRef dilation, bool transposed,
                c10::SymIntArrayRef output_padding, c10::SymInt groups) {
  static auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::convolution", "");
  torch::jit::Stack stack{input, weight, bias, stride, padding, dilation, transposed, output_padding, groups};
  run_operator(op, &stack);
  return stack[0].toTensor();
}

std::tuple<Tensor, Tensor, Tensor> convolve_backward(
    const Tensor& grad, const Tensor& input, const Tensor& weight, c10::SymIntArrayRef stride,
    c10::SymIntArrayRef padding, c10::SymIntArrayRef dilation, bool transposed, c10::SymIntArrayRef output_padding,
    c10::SymInt groups, std::array<bool, 3> mask) {
  static auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::convolution_backward", "");
  std::vector<int64_t> bias_sizes{grad.size(1)};
  torch::jit::Stack stack{grad,       input,          weight, bias_sizes, stride, padding, dilation,
                          transposed, output_padding, groups, mask};
  run_operator(op, &stack);
  return {stack[0].toTensor(), stack[1].toTensor(), stack[2].toTensor()};
}

Tensor with_biases(const Tensor& gates, const std::optional<Tensor>& bias) {
  return bias.has_value() && bias->defined() ? gates + *bias : gates;
}

std::tuple<Tensor, Tensor, Tensor> lstm_cell(const Tensor& input_gates, const Tensor& hidden_gates, const Tensor& cx,
                                             const std::optional<Tensor>& input_bias,
                                             const std::optional<Tensor>& hidden_bias) {
  auto gates = with_biases(with_biases(input_gates + hidden_gates, input_bias), hidden_bias).chunk(4, 1);
  auto in = gates[0].sigmoid(), forget = gates[1].sigmoid(), cell = gates[2].tanh(), out = gates[3].sigmoid();
  auto cy = forget * cx + in * cell;
  return {out * cy.tanh(), cy, at::cat({in, forget, cell, out}, 1)};
}

std::tuple<Tensor, Tensor, Tensor> lstm_cell_backward(const std::optional<Tensor>& grad_hy,
                                                      const std::optional<Tensor>& grad_cy, const Tensor& cx,
                                                      const Tensor& cy, const Tensor& workspace, bool has_bias) {
  auto gates = workspace.chunk(4, 1);
  auto in = gates[0], forget = gates[1], cell = gates[2], out = gates[3];
  auto squashed = cy.tanh();
  auto grad_h = grad_hy.has_value() && grad_hy->defined() ? *grad_hy : at::zeros_like(cy);
  auto grad_c = grad_h * out * (1 - squashed * squashed);
  if (grad_cy.has_value() && grad_cy->defined()) grad_c = grad_c + *grad_cy;
  auto grad_gates = at::cat({grad_c * cell * in * (1 - in), grad_c * cx * forget * (1 - forget),
                             grad_c * in * (1 - cell * cell), grad_h * squashed * out * (1 - out)},
                            1);
  return {grad_gates, grad_c * forget, has_bias ? grad_gates.sum(0) : Tensor()};
}

std::tuple<Tensor, Tensor> gru_cell(const Tensor& input_gates, const Tensor& hidden_gates, const Tensor& hx,
                                    const std::optional<Tensor>& input_bias, const std::optional<Tensor>& hidden_bias) {
  auto from_input = with_biases(input_gates, input_bias).chunk(3, 1);
  auto from_hidden = with_biases(hidden_gates, hidden_bias).chunk(3, 1);
  auto reset = (from_input[0] + from_hidden[0]).sigmoid(), keep = (from_input[1] + from_hidden[1]).sigmoid();
  auto fresh = (from_input[2] + reset * from_hidden[2]).tanh();
  return {fresh + keep * (hx - fresh), at::cat({reset, keep, fresh, hx, from_hidden[2]}, 1)};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> gru_cell_backward(const Tensor& grad, const Tensor& workspace,
                                                                     bool has_bias) {
  auto parts = workspace.chunk(5, 1);
  auto reset = parts[0], keep = parts[1], fresh = parts[2], hx = parts[3], hidden = parts[4];
  auto grad_fresh = grad * (1 - keep) * (1 - fresh * fresh);
  auto grad_keep = grad * (hx - fresh) * keep * (1 - keep);
  auto grad_reset = grad_fresh * hidden * reset * (1 - reset);
  auto from_input = at::cat({grad_reset, grad_keep, grad_fresh}, 1);
  auto from_hidden = at::cat({grad_reset, grad_keep, grad_fresh * reset}, 1);
  return {from_input, from_hidden, grad * keep, has_bias ? from_input.sum(0) : Tensor(),
          has_bias ? from_hidden.sum(0) : Tensor()};
}

// ---- registration ---------------------------------------------------------------------------------------------------

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&run_operator>());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", empty);
  m.impl("empty_strided", empty_strided);
  m.impl("resize_", resize_);
  m.impl("set_.source_Storage", set_whole_storage);
  m.impl("set_.source_Storage_storage_offset", set_storage);
  m.impl("set_.source_Tensor", set_tensor);
  m.impl("_copy_from", copy_from);
  m.impl("_copy_from_and_resize", copy_from_and_resize);
  m.impl("convolution_overrideable", convolve);
  m.impl("convolution_backward_overrideable", convolve_backward);
  m.impl("_thnn_fused_lstm_cell", lstm_cell);
  m.impl("_thnn_fused_lstm_cell_backward_impl", lstm_cell_backward);
  m.impl("_thnn_fused_gru_cell", gru_cell);
  m.impl("_thnn_fused_gru_cell_backward", gru_cell_backward);
  // By default these call their variants with `out`, which warn of an output that has the shape of a mean already.
  for (const char* name : {"mse_loss", "smooth_l1_loss"})
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&run_operator>());
  // One launch on a GPU, and so one operator here; else PyTorch would take them apart.
  for (const auto& op : c10::Dispatcher::singleton().getAllOpNames())
    if (op.name.rfind("aten::_foreach_", 0) == 0) {
      auto name = op.name.substr(6) + (op.overload_name.empty() ? "" : "." + op.overload_name);
      m.impl(name.c_str(), torch::CppFunction::makeFromBoxedFunction<&run_operator>());
    }
}

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFallthrough());
}

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
#define SIM_LOWER(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
  AT_FORALL_LOWER_PRECISION_FP(SIM_LOWER)
#define SIM_FP32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
  AT_FORALL_FP32(SIM_FP32)
#define SIM_PROMOTE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)
  AT_FORALL_PROMOTE(SIM_PROMOTE)
}

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

void start(int count, int64_t limit_bytes) {
  num_devices = DeviceIndex(count);
  for (auto& limit : memory().limits) limit = size_t(limit_bytes);
  c10::SetAllocator(kSim, &memory());
  at::RegisterPrivateUse1HooksInterface(new Hooks());
}

std::map<std::string, int64_t> read_counters() {
  return {{"operators", counters.operators},
          {"host_reads", counters.host_reads},
          {"copies_to_device", counters.copies_to_device},
          {"copies_from_device", counters.copies_from_device},
          {"copies_between", counters.copies_between},
          {"blocking_copies", counters.blocking_copies},
          {"synchronizations", counters.synchronizations}};
}

}  // namespace sim

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("start", &sim::start);
  m.def("read_counters", &sim::read_counters);
  m.def("forbid_waiting", [](bool forbids) { sim::forbids_waiting = forbids; });
  m.def("device_count", [] { return int(sim::num_devices); });
  m.def("current_device", [] { return int(sim::current_device); });
  m.def("set_device", [](int index) {
    sim::check_index(c10::DeviceIndex(index));
    sim::current_device = c10::DeviceIndex(index);
  });
  m.def("is_used", [](int index) { return sim::memory().is_used(c10::DeviceIndex(index)); });
  m.def("synchronize", [](int index) { sim::synchronize(c10::DeviceIndex(index)); });
  m.def("default_generator", [](int index) { return sim::default_generator(c10::DeviceIndex(index)); });
  m.def("set_limit", [](int index, int64_t nbytes) { sim::memory().limits[index] = size_t(nbytes); });
  m.def("get_limit", [](int index) { return int64_t(sim::memory().limits[index]); });
}
