package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Backup is data that a Cluster can start from: either some files held in the object itself, or a directory
// on the daemon's machine. It can't be changed; make another one under another name instead.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=bk,categories={all,operatord}
// +kubebuilder:printcolumn:name="Path",type=string,JSONPath=`.spec.path`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Backup struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// The data, in exactly one of two forms: data and binaryData, or path.
	// +required
	Spec BackupSpec `json:"spec"`
}

// BackupList is a list of Backups.
//
// +kubebuilder:object:root=true
type BackupList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Backup `json:"items"`
}

// BackupSpec is where the data is.
//
// +kubebuilder:validation:XValidation:rule="has(self.path) != (has(self.data) || has(self.binaryData))",message="exactly one of path and data (with binaryData) must be given"
// +kubebuilder:validation:XValidation:rule="!has(self.data) || !has(self.binaryData) || self.data.all(k, !(k in self.binaryData))",message="a key may not be both in data and in binaryData"
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="a Backup can't be changed: Clusters may have been restored from it; make another one"
type BackupSpec struct {
	// Text files by name. A name consists of letters, digits, '-', '_' and '.', and doesn't start with "..".
	// +optional
	// +kubebuilder:validation:MaxProperties=1024
	// +kubebuilder:validation:XValidation:rule="self.all(k, k.size() <= 253 && k.matches('^[-._a-zA-Z0-9]+$') && k != '.' && !k.startsWith('..'))",message="a name must consist of letters, digits, '-', '_' or '.', be at most 253 long, and be neither '.' nor start with '..'"
	Data map[string]string `json:"data,omitempty"`
	// Other files by name, base64-encoded. Names follow the rules of data, and none may be in both.
	// +optional
	// +kubebuilder:validation:MaxProperties=1024
	// +kubebuilder:validation:XValidation:rule="self.all(k, k.size() <= 253 && k.matches('^[-._a-zA-Z0-9]+$') && k != '.' && !k.startsWith('..'))",message="a name must consist of letters, digits, '-', '_' or '.', be at most 253 long, and be neither '.' nor start with '..'"
	BinaryData map[string][]byte `json:"binaryData,omitempty"`
	// An absolute path of a directory on the daemon's machine. Everything below it is copied: files and
	// directories with their modes, symbolic links as links.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	// +kubebuilder:validation:Pattern=`^/`
	Path string `json:"path,omitempty"`
}
